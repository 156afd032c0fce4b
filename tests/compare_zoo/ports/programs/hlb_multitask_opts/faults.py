# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the multi-task training with merged heads."""

FAULTS = {
    "dampening": [
        ('0.9 * (vel + g_cls)',
         '0.9 * vel + g_cls'),
    ],
    "cosine_start": [
        ('math.pi * (k - 2) / 4',
         'math.pi * k / 4'),
    ],
    "beta": [
        ('a.clamp(max=0.5)',
         'a.clamp(max=1.0)'),
        ('(q * q + (a - q))',
         '(0.5 * q * q + (a - q))'),
    ],
    "flipped": [
        ('precision.flip(0)',
         'precision'),
    ],
    "minus_one": [
        ('torch.expm1(x.clamp(max=0))',
         'torch.exp(x.clamp(max=0))'),
    ],
}
