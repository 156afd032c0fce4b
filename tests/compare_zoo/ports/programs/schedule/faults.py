# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "nesterov": [("w -= lr * (g + 0.9 * v)", "w -= lr * v")],
    "decoupled": [
        ("            g = g + 0.01 * w  # noqa: PLW2901  # <- decoupled bias\n", ""),
        ("w -= lr * (g + 0.9 * v)", "w -= lr * (g + 0.9 * v) + 0.01 * w"),
    ],
    "warmup": [("lr = 0.1 * (step + 1) / 2", "lr = 0.1 * step / 2")],
    "dampened": [("v.mul_(0.9).add_(g)", "v.mul_(0.9).add_(g, alpha=0.1)")],
    "bias": [("g = g + 0.01 * w", "g = g + 0.01 * w * (w.dim() > 1)")],
}
