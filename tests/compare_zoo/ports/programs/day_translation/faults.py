# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "embedding": [("x = embedding(ids) * DIM**0.5", "x = embedding(ids)")],
    "memory": [
        (
            "y = layer(y, memory, allowed, readable)",
            "y = layer(y, memory, allowed, torch.ones_like(readable))",
        )
    ],
    "cross": [
        (
            "y + self.cross(y, memory, readable)",
            "memory[:, : y.shape[1]] + self.cross(y, memory, readable)",
        )
    ],
    "causal": [("dtype=torch.bool).tril()", "dtype=torch.bool).tril(-1)")],
    "smoothing": [("loss[target != 0].mean()", "loss.mean()")],
    "schedule": [("step * 3**-1.5", "(step - 1) * 3**-1.5")],
}
