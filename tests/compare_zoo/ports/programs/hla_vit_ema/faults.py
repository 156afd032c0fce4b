# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the vision transformer."""

FAULTS = {
    "gelu_kind": [
        ("h = 0.5 * h * (1 + torch.erf(h * 0.7071067811865476))",
         "h = h * torch.sigmoid(1.702 * h)"),
    ],
    "patch_order": [
        ("im.reshape(4, 4, 4, 4).transpose(1, 2)", "im.reshape(4, 4, 4, 4)"),
    ],
    "mix_label": [
        ("hot[perm].mul(1 - lam) + lam * hot", "hot[perm].mul(lam) + (1 - lam) * hot"),
    ],
    "decay_group": [
        ('DECAYED = {"out_w",', 'DECAYED = {"ln_g", "lnf_g", "out_w",'),
    ],
    "warm_up": [
        ("(t / 2 if t <= 2", "((t - 1) / 2 if t <= 2"),
    ],
}
