# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "lstm"
FAULTS = {
    "gates": [("i, f, g, o = gates", "i, g, f, o = gates")],
    "forget": [("torch.sigmoid(f) * c", "torch.sigmoid(f + 1) * c")],
    "state": [("torch.sigmoid(o) * torch.tanh(c)", "torch.sigmoid(o) * c")],
    "bias": [("self.weight_hh.t() + self.bias_hh", "self.weight_hh.t() + self.bias_ih")],
    "clip": [
        ("clip_grad_norm_(model.parameters(), 0.5)", "clip_grad_norm_(model.parameters(), 0.1)")
    ],
    "momentum": [("momentum=0.9", "momentum=0.95")],
}
