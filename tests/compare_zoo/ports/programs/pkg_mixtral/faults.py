# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "gate_up": [("torch.cat((w1, w3), dim=1)", "torch.cat((w3, w1), dim=1)")],
    "rotary": [("= permute(wq)", "= wq"), ("= permute(wk)", "= wk")],
    "aux_pads": [("[int(i > 0) for i in ids]", "[1] * len(ids)")],
    "eps": [("    rms_norm_eps=1e-6,", "    rms_norm_eps=1e-5,")],
    "shifted": [('    batch["shift_labels"] = batch["labels"]', "    pass")],
}
