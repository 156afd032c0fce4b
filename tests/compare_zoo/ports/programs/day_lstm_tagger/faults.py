# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [("i, f, g, o = gates", "i, g, f, o = gates")],
    "cell": [("torch.sigmoid(o) * torch.tanh(c)", "torch.sigmoid(o) * c")],
    "held": [
        ("h = keep * new_h + (1 - keep) * h", "h = new_h"),
        ("c = keep * new_c + (1 - keep) * c", "c = new_c"),
    ],
    "reverse": [("mask, reversed(range(STEPS)))", "mask, range(STEPS))")],
    "activation": [("self.norm(both).relu()", "self.norm(both)")],
    "ignored": [("(each * weight).sum() / weight.sum()", "each.mean()")],
}
