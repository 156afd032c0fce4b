# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "convnext"
FAULTS = {
    "first_norm": [
        ("(x - u).pow(2).mean(1, keepdim=True)", "(x - u).abs().mean(1, keepdim=True).pow(2)")
    ],
    "gamma": [
        ("self.gamma[:, None, None] * self.pwconv2(y)", "self.pwconv2(y)"),
        ("optimizer.zero_grad()", "model.zero_grad()"),
    ],
    "residual": [("return x + y", "return y")],
    "pool": [("x.mean([-2, -1])", "x.amax([-2, -1])")],
    "nesterov": [(", nesterov=True", "")],
    "average": [("mul_(0.9).add_(value, alpha=0.1)", "mul_(0.99).add_(value, alpha=0.01)")],
}
