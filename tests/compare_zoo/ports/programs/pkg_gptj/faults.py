# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "positions": [("place[:, -1:] + 1", "torch.full_like(ids, mask.shape[1] - 1)")],
    "pad_mask": [("attention_mask=mask", "attention_mask=torch.ones_like(mask)")],
    "gelu": [('activation_function="gelu_new"', 'activation_function="gelu"')],
    "head_bias": [('        "lm_head.bias": old["proj_b"],', "")],
    "rotary_dim": [("    rotary_dim=4,", "    rotary_dim=8,")],
}
