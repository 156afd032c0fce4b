# SPDX-License-Identifier: Apache-2.0
"""Faults of the GPT of flat functions."""

FAULTS = {
    "head_merge": [("mixed.transpose(1, 2).reshape(b, t, D)", "mixed.reshape(b, t, D)")],
    "untied_head": [('HEAD = P["tok_emb"]', 'HEAD = P["head"] = ckpt["lm_head.weight"].clone()')],
    "embedding_decay": [('{"tok_emb", "pos_emb", "wq",', '{"wq",')],
    "warmup": [("return PEAK * (step + 1) / (WARMUP + 1)", "return PEAK * step / WARMUP")],
    "clip_scope": [("torch.clamp(1.0 / (total + 1e-6), max=1.0)",
                    "torch.clamp(1.0 / (grads[name].norm() + 1e-6), max=1.0)")],
}
