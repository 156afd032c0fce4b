# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the residual network with its own backward functions."""

FAULTS = {
    "rms_reduce": [
        ('(dn * n).mean(-1, keepdim=True))',
         '(dn * n).sum(-1, keepdim=True))'),
    ],
    "swapped": [
        ('sd[f"ffns.{i}.w1.weight"], sd[f"ffns.{i}.w3.weight"]',
         'sd[f"ffns.{i}.w3.weight"], sd[f"ffns.{i}.w1.weight"]'),
    ],
    "smooth_off": [
        ('eps / z.shape[1])',
         'eps / (z.shape[1] - 1))'),
    ],
    "nesterov": [
        ('p.add_(1.8 * v - 0.8 * before)',
         'p.add_(v)'),
    ],
    "bag_back": [
        ('dy.flip(1).cumsum(1).flip(1)',
         'dy.cumsum(1)'),
    ],
}
