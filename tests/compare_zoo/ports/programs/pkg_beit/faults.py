# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "patch_order": [("kernel.permute(0, 2, 3, 1).flatten(1)", "kernel.flatten(1)")],
    "qkv_bias": [("torch.zeros(D), self.v_bias))", "self.v_bias, torch.zeros(D)))")],
    "cls_bias": [('new["from_class"], new["to_class"],', 'new["to_class"], new["from_class"],')],
    "gelu": [("nn.GELU()", 'nn.GELU(approximate="tanh")')],
    "schedule": [("= rate(step)", "= rate(step + 1)")],
}
