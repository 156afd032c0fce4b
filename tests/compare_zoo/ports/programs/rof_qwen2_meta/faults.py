# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the port of the Qwen2 training."""

NEEDS = ["transformers"]
FAULTS = {
    "norm_eps": [("norm_eps: float = 1e-5", "norm_eps: float = 1e-6")],
    "kv_repeat": [
        (
            "k, v = k.repeat_interleave(rep, dim=2), v.repeat_interleave(rep, dim=2)",
            "k, v = k.repeat(1, 1, rep, 1), v.repeat(1, 1, rep, 1)",
        )
    ],
    "pad_labels": [("tokens[:, 1:], ignore_index=0)", "tokens[:, 1:])")],
    "clip_scope": [("p.grad.mul_((limit / (total + 1e-6))", "p.grad.mul_((limit / (p.grad.norm() + 1e-6))")],
    "decay_norms": [('if "norm" in n or n.endswith("bias")]', 'if n.endswith("bias")]')],
}
