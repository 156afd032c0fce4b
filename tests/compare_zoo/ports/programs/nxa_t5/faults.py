# SPDX-License-Identifier: Apache-2.0
"""Faults of the T5 of plain functions."""

FAULTS = {
    "bucket_sign": [("later = NB // 2 if j > i else 0", "later = NB // 2 if i > j else 0")],
    "cross_mask": [("memory, absent=blank)", "memory)")],
    "start_token": [("torch.full_like(tgt[:, :1], PAD)", "torch.full_like(tgt[:, :1], EOS)")],
    "loss_mean": [("/ keep.sum()", "/ keep.numel()")],
    "param_scale": [("relative = max(1e-3, float(rms(p)))", "relative = 1.0")],
}
