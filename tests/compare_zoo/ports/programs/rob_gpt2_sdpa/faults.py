# SPDX-License-Identifier: Apache-2.0
"""Faults of the sdpa trainer."""

NEEDS = ["transformers"]
FAULTS = {
    "layer_scaling": [("config.scale_attn_by_inverse_layer_idx = True", "config.scale_attn_by_inverse_layer_idx = False")],
    "left_positions": [("attention_mask=present.long(), position_ids=positions)", "attention_mask=present.long())")],
    "end_ignored": [
        ("keep = present[:, 1:] & present[:, :-1]", "keep = present[:, :-1] & (ids[:, 1:] != 0)"),
    ],
    "mean_of_means": [
        ("token_losses(self.net, ids, present).sum() / targets", "token_losses(self.net, ids, present).mean() / self.parts"),
    ],
    "clip_each_micro": [
        (
            "self.grad += torch.cat([g.flatten() for g in torch.autograd.grad(value, self.params)])",
            "self.grad += self.bounded(torch.cat([g.flatten() for g in torch.autograd.grad(value, self.params)]))",
        ),
        ("grad = self.bounded(self.grad) + self.decay * at", "grad = self.grad + self.decay * at"),
    ],
}
