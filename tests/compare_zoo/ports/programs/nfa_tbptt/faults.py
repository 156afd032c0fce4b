# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the GRU character model with truncated backpropagation."""

FAULTS = {
    "reset_place": [
        ('r * g("n", "h", h))',
         'g("n", "h", r * h))'),
    ],
    "ar_reduction": [
        ("1e-3 * (logits * logits).mean()",
         "1e-3 * (logits * logits).sum(-1).mean()"),
    ],
    "clip_norm": [
        ("norm = sum(v.square().sum() for v in g.values()).sqrt()",
         "norm = sum(v.norm() for v in g.values())"),
    ],
    "eps_inside": [
        ("g[k] / (sq.sqrt() + 1e-4)",
         "g[k] / (sq + 1e-4).sqrt()"),
    ],
    "reset_layer": [
        ("carry = tuple(h * keep for h in carry)",
         "carry = (carry[0] * keep, carry[1])"),
    ],
}
