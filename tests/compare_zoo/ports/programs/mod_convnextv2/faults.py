# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "grn": [("energy.mean(dim=1, keepdim=True)", "energy.mean(dim=0, keepdim=True)")],
    "residual": [
        ("x = x + branch(x)", "x = branch(x) if stage is self.stages[2] else x + branch(x)")
    ],
    "constants": [("np.float32([0.229, 0.224, 0.225])", "np.float32([0.225, 0.224, 0.229])")],
    "smoothing": [("off = amount / logits.shape[1]", "off = amount / (logits.shape[1] - 1)")],
    "nesterov": [("0.05 * (p.grad + 0.9 * v)", "0.05 * v")],
    "average": [("0.6 * kept + 0.4 * p", "0.4 * kept + 0.6 * p")],
}
