# SPDX-License-Identifier: Apache-2.0
"""Faults for the eager Llama port."""

FAULTS = {
    "rope_layout": [("= as_pairs(q, Args.q_heads)", "= q"), ("= as_pairs(k, Args.kv_heads)", "= k")],
    "kv_repeat": [("q = q.view(b, t, Args.kv_heads, share, Args.hd)",
                   "q = q.view(b, t, share, Args.kv_heads, Args.hd).transpose(2, 3)"),
                  ("\"bgsij,bjgd->bigsd\"", "\"bgsij,bjgd->bisgd\"")],
    "prompt_mask": [("token_loss[answer].mean()", "(token_loss * answer).mean()")],
    "tied_head": [("@ self.embed_tokens.weight.t()", "@ self.embed_tokens.weight.detach().t()")],
    "beta2": [("b2=0.95", "b2=0.999")],
}
