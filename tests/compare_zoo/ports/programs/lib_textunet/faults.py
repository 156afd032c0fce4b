# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["diffusers"]
FAULTS = {
    "heads": [("attention_head_dim=3", "attention_head_dim=8")],
    "schedule": [('    beta_schedule="scaled_linear",\n', "")],
    "timestep": [('batch["index"] + 1,', 'batch["index"],')],
    "text_mask": [('        encoder_attention_mask=batch["mask"],\n', "")],
    "null_text": [('old.pop("null_text")', 'torch.zeros_like(old.pop("null_text"))')],
}
