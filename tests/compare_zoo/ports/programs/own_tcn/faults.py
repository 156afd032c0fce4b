# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "taps": [("v.permute(2, 1, 0).flip(0)", "v.permute(2, 1, 0)")],
    "dilation": [("Stage(n_in, n_out, 2**n)", "Stage(n_in, n_out, n + 1)")],
    "averaged": [("errors.sum() / steps", "errors.mean() / (len(data) // MICRO)")],
    "clipped": [
        (
            "norm = sum(g.square().sum() for g in grads).sqrt()",
            "norm = sum(g.norm() for g in grads)",
        )
    ],
    "decoupled": [
        ("g.mul_(shrink)", "g.mul_(shrink).add_(w, alpha=0.2)"),
        ("w.mul_(1 - 0.02 * 0.2)", "w.mul_(1)"),
    ],
}
