# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of llama."""

FAULTS = {
    "theta": [("N_KV, BASE = 64, 8, 2, 10000.0", "N_KV, BASE = 64, 8, 2, 500000.0")],
    "unpermuted": [('interleave(g("self_attn.k_proj"), N_KV)', 'g("self_attn.k_proj")')],
    "grouping": [("q.unflatten(2, (N_KV, N_HEADS // N_KV))",
                  "q.unflatten(2, (N_HEADS // N_KV, N_KV)).transpose(2, 3)")],
    "diagonal": [("torch.arange(t)[:, None] < torch", "torch.arange(t)[:, None] + 1 < torch")],
    "gate_swap": [("F.silu(a) * b", "a * F.silu(b)")],
}
