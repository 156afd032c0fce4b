# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the other person's GPT-2 training loop."""

NEEDS = ["transformers"]
FAULTS = {
    "positions": [("attention_mask=batch.real.long(), position_ids=batch.places)", "attention_mask=batch.real.long())")],
    "token_mean": [('ignore_index=-100, reduction="sum") / count', "ignore_index=-100) / self.args.accumulate")],
    "decay_names": [('("bias", "ln_1.weight", "ln_2.weight", "ln_f.weight")', '("bias", "LayerNorm.weight")')],
    "zero_grad_place": [
        ("self.optimizer.zero_grad(set_to_none=True)  # <- zero_grad_place", "self.model.train()"),
        (
            "            part.backward()  # <- zero_grad_place",
            ("            self.optimizer.zero_grad(set_to_none=True)  # <- zero_grad_place\n"
            "            part.backward()  # <- zero_grad_place"),
        ),
    ],
    "pad_predicts": [("masked_fill(~self.real[:, :-1], -100)", "masked_fill(~self.real[:, 1:], -100)")],
}
