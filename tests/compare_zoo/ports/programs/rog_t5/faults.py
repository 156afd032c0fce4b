# SPDX-License-Identifier: Apache-2.0
"""Porting mistakes for the T5-like pair."""

FAULTS = {
    "attn_scale": [
        ('torch.einsum("bqhd,bkhd->bhqk", q, k)', 'torch.einsum("bqhd,bkhd->bhqk", q, k) * CFG["head_dim"] ** -0.5'),
    ],
    "bias_bidirectional": [('causal=side == "decoder")', "causal=False)")],
    "head_scale": [('y = y / np.sqrt(CFG["emb"])', "y = y * 1.0")],
    "pad_in_loss": [('(batch["targets"] > 0).float()', '(batch["targets"] >= 0).float()')],
    "param_scale": [("p -= step_size * scale * update", "p -= step_size * update")],
}
