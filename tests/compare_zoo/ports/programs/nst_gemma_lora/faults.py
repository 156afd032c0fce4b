# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of gemma lora."""

FAULTS = {
    "unit_offset": [('if "norm" in k:', 'if "layernorm" in k:')],
    "lora_scale": [("(ALPHA / RANK) * (B @ A)", "(ALPHA / RANK ** 0.5) * (B @ A)")],
    "kv_groups": [('q_proj").T).view(B, T, G, H // G, C)', 'q_proj").T).view(B, T, H // G, G, C).transpose(2, 3)')],
    "cap_order": [("score = cap(score, 5.0)", "score = cap(score * C ** 0.5, 5.0) / C ** 0.5")],
    "answer_only": [("answer = torch.arange(1, 11) >= prompt", "answer = torch.arange(10) >= prompt")],
}
