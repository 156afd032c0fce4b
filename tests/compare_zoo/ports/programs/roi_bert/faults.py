# SPDX-License-Identifier: Apache-2.0
"""Faults for the encoder classifier port."""

FAULTS = {
    "emb_ln_eps": [("eps=EMB_EPS)", "eps=1e-12)")],
    "position_ids": [("torch.where(mask > 0, mask.cumsum(1) + PAD, PAD)",
                      "torch.arange(ids.shape[1]).expand_as(ids)")],
    "pad_mask": [("masked_fill(mask == 0, float(\"-inf\"))", "masked_fill(mask == 0, -1.0)")],
    "weighted_mean": [("-(wy * picked).sum() / wy.sum()", "-(wy * picked).mean()")],
    "decay_groups": [("dict(params=vectors, weight_decay=0.0)", "dict(params=vectors, weight_decay=0.2)")],
}
