# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the ensemble as one stacked parameter tree."""

FAULTS = {
    "bessel": [
        ('h.pow(2).mean(0)',
         'h.pow(2).sum(0) / (len(h) - 1)'),
    ],
    "log_std": [
        ('torch.exp(-s)',
         'torch.exp(-2 * s)'),
    ],
    "pooled_clip": [
        ('for g in grads]).sum(0).sqrt()',
         'for g in grads]).sum().sqrt().expand(5)'),
    ],
    "rate_shift": [
        ('torch.arange(1, 6)',
         'torch.arange(5)'),
    ],
    "no_repeat": [
        ('for d in draws]).float()',
         'for d in draws]).clamp(max=1).float()'),
    ],
}
