# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of bert."""

FAULTS = {
    "norm_eps": [("depth=2, eps=1e-12", "depth=2, eps=1e-5")],
    "pad_keys": [("key_padding_mask=padding, ", "")],
    "segments": [("self.seg[1], self.seg[0])", "self.seg[0], self.seg[1])")],
    "mean_pool": [("x.sum(dim=1) / valid.sum(dim=1, keepdim=True)", "x.mean(dim=1)")],
    "in_proj": [('("query", "key", "value")', '("key", "query", "value")')],
}
