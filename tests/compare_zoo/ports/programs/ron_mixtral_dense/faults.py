# SPDX-License-Identifier: Apache-2.0
"""Five faults of the dense Mixtral port."""

NEEDS = ["transformers"]
FAULTS = {
    "no_renorm": [("share = best.softmax(-1)", "share = scores.softmax(-1).gather(-1, index)")],
    "gate_detach": [("scatter(-1, index, share)", "scatter(-1, index, share.detach())")],
    "gate_up_order": [("gate, up = get(", "up, gate = get(")],
    "aux_mask": [("on = on[..., None].float()", "on = torch.ones_like(on[..., None]).float()")],
    "bias_correction": [
        ("mean = m / (1 - self.b1**self.t)", "mean = m"),
        ("dev = (v / (1 - self.b2**self.t)).sqrt()", "dev = v.sqrt()"),
    ],
}
