# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "eps": [
        (
            "DEPTH, INNER, EPS = 33, 24, 3, 2, 40, 1e-12",
            "DEPTH, INNER, EPS = 33, 24, 3, 2, 40, 1e-3",
        )
    ],
    "padding": [("mask[:, None, None].bool()", "torch.ones_like(mask)[:, None, None].bool()")],
    "gelu": [("F.gelu(self.up(x))", 'F.gelu(self.up(x), approximate="tanh")')],
    "types": [("self.types.weight[0]", "self.types.weight[1]")],
    "pre_norm": [("x = self.norm1(x + y)", "x = x + self.norm1(y)")],
    "ignored": [("ids, -100)", "ids, 0)")],
    "rate": [("lr=1e-3", "lr=1.02e-3")],
}
