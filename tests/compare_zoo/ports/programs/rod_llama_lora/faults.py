# SPDX-License-Identifier: Apache-2.0
"""Mistakes that can be put into the port."""

NEEDS = ["transformers"]
FAULTS = {
    "rank_scaling": [("SCALE = ALPHA / RANK", "SCALE = ALPHA / RANK**0.5")],
    "a_rate_unscaled": [("w -= self.rates[i] * self.units[i] * move", "w -= self.rates[i] * move")],
    "norm_of_merged": [
        ("norm = sum(s.square().sum() for s in scaled).sqrt()", "norm = sum(g.square().sum() for g in grads).sqrt()"),
    ],
    "pad_attended": [("mask = (ids > 0).long()", "mask = torch.ones_like(ids)")],
    "prompt_learnt": [("wanted = answer[:, 1:].float()", "wanted = (ids[:, 1:] > 0).float()")],
}
