# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the conditional SN-GAN with a hinge loss."""

FAULTS = {
    "film_offset": [
        ('* (1 + onehot @ p["label.weight"])',
         '* (onehot @ p["label.weight"])'),
    ],
    "one_iteration": [
        ("sn = refine(dp, sn_a)",
         "sn = sn_a"),
    ],
    "match_norm": [
        ("(generate(p, z, onehot).mean(0) - goal).abs().mean()",
         "(generate(p, z, onehot).mean(0) - goal).square().mean()"),
    ],
    "nadam_bias": [
        ("mu_next / (1 - prod * mu_next) * m[k]",
         "mu_next / (1 - prod) * m[k]"),
    ],
    "ema_init": [
        ("avg = gp if it < 2 else",
         "avg = gp if it < 1 else"),
    ],
}
