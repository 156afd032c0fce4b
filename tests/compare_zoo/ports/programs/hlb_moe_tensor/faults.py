# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the dense-dispatch mixture of experts."""

FAULTS = {
    "renorm": [
        ('return kept / kept.sum(1, keepdim=True), chosen',
         'return kept, chosen'),
    ],
    "half_split": [
        ('a[..., ::2], a[..., 1::2]',
         'a.chunk(2, -1)'),
    ],
    "load_scale": [
        ('aux = E / K * torch.dot',
         'aux = E * torch.dot'),
    ],
    "adam_eps": [
        ('eps=1e-6, foreach',
         'eps=1e-3, foreach'),
    ],
    "time_major": [
        ('unflatten(0, (B, T)).sum(1)',
         'unflatten(0, (T, B)).sum(0)'),
    ],
}
