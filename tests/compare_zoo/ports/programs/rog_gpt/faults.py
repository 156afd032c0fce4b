# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the GPT pair."""

FAULTS = {
    "gelu_exact": [('nn.GELU(approximate="tanh")', "nn.GELU()")],
    "mask_diagonal": [("triu(diagonal=1)", "triu(diagonal=2)")],
    "head_untied": [("self.lm_head.weight = self.tok.weight", "self.lm_head.weight.data = self.tok.weight.data.clone()")],
    "double_shift": [
        ("nn.functional.cross_entropy(logits.transpose(1, 2), nxt)", "nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), nxt[:, 1:])"),
    ],
    "adam_l2": [("torch.optim.AdamW(gpt.parameters()", "torch.optim.Adam(gpt.parameters()")],
}
