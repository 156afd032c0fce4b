# SPDX-License-Identifier: Apache-2.0
"""Faults of the T5 port."""

NEEDS = ["transformers"]
FAULTS = {
    "bucket_sides": [("table[buckets(size, size, memory is None)]", "table[buckets(size, size, False)]")],
    "head_scale": [("    x = x / math.sqrt(x.shape[-1])  # <- head_scale\n", "")],
    "start_token": [("inputs = torch.full_like(target, PAD)", "inputs = torch.full_like(target, EOS)")],
    "pad_counts": [("F.cross_entropy(logits.mT, target, ignore_index=PAD)", "F.cross_entropy(logits.mT, target)")],
    "param_scale": [("rate = lr * root_mean_square(old.detach()).clamp(min=1e-3)", "rate = lr")],
}
