# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "flattened": [("kernel.permute(2, 3, 1, 0).reshape(54, 24)", "kernel.reshape(24, 54).T")],
    "dueling": [("a - a.mean(2, keepdim=True)", "a - a.mean(1, keepdim=True)")],
    "ends": [("G**S * Z).clamp(LO, HI)", "G**S * Z)")],
    "n_step": [("ended.cumsum(1) - ended", "ended.cumsum(1)")],
    "soft": [("slow_w[k] + 0.2 * (w[k] - slow_w[k])", "w[k] + 0.2 * (slow_w[k] - w[k])")],
}
