# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "squeeze": [("s = x.flatten(2).mean(2)  ", "s = x.flatten(2).amax(2)  ")],
    "moments": [
        (
            "root = (V[k] / (1 - 0.999**t)).sqrt() + 1e-5",
            "root = V[k].sqrt() / (1 - 0.999**t) + 1e-5",
        )
    ],
    "cardinality": [
        (
            "parts = x.chunk(cardinality, dim=1)",
            "parts = [x[:, i::cardinality] for i in range(cardinality)]",
        )
    ],
    "pooling": [("value=-torch.inf)", "value=0.0)")],
    "running": [
        ("0.9 * old[0] + 0.1 * mean", "0.1 * old[0] + 0.9 * mean"),
        ("0.9 * old[1] + 0.1 * var * n / (n - 1)", "0.1 * old[1] + 0.9 * var * n / (n - 1)"),
    ],
}
