# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the port of the BERT training."""

NEEDS = ["transformers"]
FAULTS = {
    "activation": [('FFN, activation="gelu", **kind)', "FFN, **kind)")],
    "segments": [("x = x + self.segment(kinds)", "x = x + self.segment(torch.zeros_like(kinds))")],
    "pad_mask": [("self.body(x, src_key_padding_mask=words.eq(0))", "self.body(x)")],
    "scored_tokens": [("scored = hidden", "scored = words.ne(0)")],
    "bias_correction": [("fix1, fix2 = 1 - self.b1**self.t, 1 - self.b2**self.t", "fix1 = fix2 = 1.0")],
}
