# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "previous": [("return grad * earlier(states), grad", "return grad * states, grad")],
    "causal": [("(0, 0, len(self.taps) - 1, 0)", "(0, 0, len(self.taps) - 2, 1)")],
    "bias": [
        (
            "F.softplus(self.widen(narrow))[..., None]",
            "(F.softplus(F.linear(narrow, self.widen.weight)) + self.widen.bias)[..., None]",
        )
    ],
    "skip": [("(y + self.skip * x) * F.silu(z)", "y * F.silu(z) + self.skip * x")],
    "split": [("half_x, half_z = old", "half_z, half_x = old")],
    "root": [("w.grad / (square.sqrt() + 1e-3)", "w.grad / (square + 1e-3).sqrt()")],
}
