# SPDX-License-Identifier: Apache-2.0
"""Five faults of the fused Mistral port."""

NEEDS = ["transformers"]
FAULTS = {
    "window": [("(age < self.a.window)", "(age <= self.a.window)")],
    "qk_layout": [("q, k = interleave(q, a.n_heads), interleave(k, a.n_kv)", "q, k = q.contiguous(), k.contiguous()")],
    "prompt_labels": [(">= prompt[:, None]", ">= 0 * prompt[:, None]")],
    "decay_norms": [("dict(params=vectors, weight_decay=0.0)", "dict(params=vectors, weight_decay=0.1)")],
    "warmup": [("(step + 1) / 3", "step / 3")],
}
