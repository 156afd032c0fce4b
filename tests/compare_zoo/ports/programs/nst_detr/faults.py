# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of detr."""

FAULTS = {
    "corners": [("return centre - size / 2, centre + size / 2", "return centre - size, centre + size")],
    "memory_pad": [('"multihead_attn", pad), DEC', '"multihead_attn"), DEC')],
    "box_hidden": [('torch.relu(fc(y, "bbox_embed.0"))', 'torch.tanh(fc(y, "bbox_embed.0"))')],
    "eos_weight": [(".sum() / w.sum()", ".mean()")],
    "slow_group": [('k.split(".")[0] == "input_proj"', 'k.split(".")[-1] == "input_proj"')],
}
