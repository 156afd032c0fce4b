# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the bagged classifiers."""

FAULTS = {
    "attack_sign": [
        ("torch.sign(grad(member_loss, argnums=1)(ws, xs, ohs))",
         "grad(member_loss, argnums=1)(ws, xs, ohs)"),
    ],
    "count_kept": [
        ("blank(m), blank(v), n * ~hit",
         "blank(m), blank(v), n"),
    ],
    "eps_spot": [
        ("(torch.sqrt(b) / c2 + 1e-5)",
         "((torch.sqrt(b) + 1e-5) / c2)"),
    ],
    "label_square": [
        ("((X[:, 0] + X[:, 1] ** 2) > 0.5)",
         "((X[:, 0] + X[:, 1]) ** 2 > 0.5)"),
    ],
    "skip_lost": [
        ("affine(c, h + torch.tanh(affine(b, h)))",
         "affine(c, torch.tanh(affine(b, h)))"),
    ],
}
