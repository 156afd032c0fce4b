# SPDX-License-Identifier: Apache-2.0
"""Faults of the DistilBERT port."""

NEEDS = ["transformers"]
FAULTS = {
    "ln_eps": [("self.norm_in = nn.LayerNorm(D, eps=EPS)", "self.norm_in = nn.LayerNorm(D)")],
    "pad_mask": [("block(h, src_key_padding_mask=is_pad)", "block(h)")],
    "tie_broken": [("F.linear(picked, self.tok, self.out_bias)", "F.linear(picked, self.tok.detach(), self.out_bias)")],
    "mean_over_all": [('reduction="sum") / hole.sum()', 'reduction="sum") / hole.numel()')],
    "decay_biases": [("if p.ndim > 1:", "if p.ndim >= 1:")],
}
