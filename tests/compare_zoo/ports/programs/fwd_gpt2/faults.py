# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of gpt2."""

FAULTS = {
    "activation": [('F.gelu(h, approximate="tanh")', "h * torch.sigmoid(1.702 * h)")],
    "causal": [(", is_causal=True)", ")")],
    "qkv_order": [("wq, wk, wv = p[", "wk, wv, wq = p["), ("bq, bk, bv = p[", "bk, bv, bq = p[")],
    "proj_layout": [('p["attn.c_proj.weight"].t()', 'p["attn.c_proj.weight"]')],
    "positions": [('params["pos"][:t]', 'params["pos"][1:t + 1]')],
}
