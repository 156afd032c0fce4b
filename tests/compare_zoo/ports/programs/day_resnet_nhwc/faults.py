# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "padding": [
        ("F.pad(x, (0, 0, 1, 1, 1, 1))", "F.pad(x, (0, 0, 0, 1, 0, 1))"),
    ],
    "activation": [("return F.relu(y + skip)", "return F.relu(y) + skip")],
    "momentum": [("channels, decay=0.9", "channels, decay=0.99")],
    "unbiased": [("unbiased = var * n / (n - 1)", "unbiased = var")],
    "eval_mode": [("    net.eval()\n", "")],
    "decay": [("weight_decay=5e-4", "weight_decay=5e-3")],
}
