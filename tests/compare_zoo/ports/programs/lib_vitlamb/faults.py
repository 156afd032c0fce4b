# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["timm"]
FAULTS = {
    "registers": [("x[:, 3:].mean(1)", "x[:, 1:].mean(1)")],
    "fc_norm": [
        ("x = x[:, 3:].mean(1)", 'x = norm(tree, "fc_norm", x)[:, 3:].mean(1)'),
        ('dense(tree, "head", norm(tree, "fc_norm", x))', 'dense(tree, "head", x)'),
    ],
    "smoothing": [("hard * 0.9 + 0.1 / CLASSES", "hard * 0.9 + (1 - hard) * 0.1 / (CLASSES - 1)")],
    "scales": [("rate * scale_of(name) * change", "rate * change")],
    "trust": [("if decayed(name):", "if tree[name].dim() > 1:")],
}
