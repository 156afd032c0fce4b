# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the Gemma pair."""

NEEDS = ["transformers"]
FAULTS = {
    "kv_tiled": [("t.repeat_interleave(H // KV, dim=1)", "t.repeat(1, H // KV, 1, 1)")],
    "embed_unscaled": [('F.embedding(ids, p["tok"]) * math.sqrt(D)', 'F.embedding(ids, p["tok"])')],
    "gelu_exact": [('F.gelu(gate, approximate="tanh")', "F.gelu(gate)")],
    "clip_each_tensor": [
        ("    total = torch.stack([g.square().sum() for g in grads]).sum().sqrt()  # <- clip_each_tensor\n", ""),
        ("limit / (total + 1e-6)", "limit / (g.norm() + 1e-6)"),
    ],
    "no_bias_correction": [("(m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps)", "m / (v.sqrt() + eps)")],
}
