# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the pair roj_vit_mixup."""

NEEDS = ["timm"]
FAULTS = {
    "qk_norm_all_heads": [
        ('w, i + "qnorm", (-1,))', 'w, i + "qnorm", (-2, -1))'),
        ('w, i + "knorm", (-1,))', 'w, i + "knorm", (-2, -1))'),
    ],
    "pool_prefix_tokens": [("x[:, PREFIX:].mean(1)", "x.mean(1)")],
    "mixup_partner_labels": [("(1 - lam) * first.flip(0)", "(1 - lam) * first")],
    "clip_each_tensor": [
        (
            "return grad * min(1.0, limit / (grad.norm().item() + 1e-6))",
            (
                "return torch.cat([p * min(1.0, limit / (p.norm().item() + 1e-6)) "
                "for p in grad.split([b - a for a, b, _ in params.slices.values()])])"
            ),
        ),
    ],
    "warmup_one_ahead": [("lr = lr_at(t)", "lr = lr_at(t + 1)")],
}
