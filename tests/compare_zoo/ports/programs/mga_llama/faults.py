# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of llama."""

FAULTS = {
    "rope_table": [("[: dim // 2].float() / dim)", "[: dim // 2].float() / (dim // 2))")],
    "rms_eps": [("eps=1e-5)", "eps=1e-6)")],
    "kv_groups": [("xq = xq.view(bsz, n, NKV, NH // NKV, HD)",
                   "xq = xq.view(bsz, n, NH // NKV, NKV, HD).transpose(2, 3)"),
                  ("return F.linear(out.flatten(2),", "return F.linear(out.transpose(2, 3).flatten(2),")],
    "beta_two": [("b2=0.95", "b2=0.999")],
    "prompt_mask": [("torch.arange(1, T) >= prompt_len", "torch.arange(T - 1) >= prompt_len")],
}
