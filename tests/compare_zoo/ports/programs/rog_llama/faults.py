# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the Llama-like pair."""

FAULTS = {
    "rms_eps": [("NORM_EPS = 1e-5", "NORM_EPS = 1e-6")],
    "kv_repeat": [
        ("k.repeat_interleave(HEADS // KV_HEADS, dim=2)", "k.repeat(1, 1, HEADS // KV_HEADS, 1)"),
        ("v.repeat_interleave(HEADS // KV_HEADS, dim=2)", "v.repeat(1, 1, HEADS // KV_HEADS, 1)"),
    ],
    "gate_up_swap": [("torch.cat([gate, up])", "torch.cat([up, gate])")],
    "wd_on_norms": [("if p.ndim >= 2:", "if p.ndim >= 1:")],
    "warmup_off_by_one": [("min(1.0, (step + 1) / warmup)", "min(1.0, step / warmup)")],
}
