# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of bert."""

FAULTS = {
    "norm_eps": [("self.embed_norm = nn.LayerNorm(D_MODEL, eps=1e-12)",
                  "self.embed_norm = nn.LayerNorm(D_MODEL)")],
    "pad_mask": [("padding = tokens.eq(0)", "padding = tokens.eq(0).float()")],
    "pool_act": [("nn.Tanh()", "nn.GELU()")],
    "mlm_mean": [("/ gold.numel()", "/ tokens.ne(0).sum()")],
    "bias_corr": [("value=-lr)", "value=-lr * (1 - b2 ** count) ** 0.5 / (1 - b1 ** count))")],
}
