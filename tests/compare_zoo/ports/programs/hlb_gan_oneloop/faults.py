# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the GAN as one loop over turns."""

FAULTS = {
    "leaky_slope": [
        ('0.2 * a',
         '0.01 * a'),
    ],
    "beta_one": [
        ('b1=0.5',
         'b1=0.9'),
    ],
    "smooth_half": [
        ('0.9 * s[n:].sum()',
         '0.9 * s[:n].sum()'),
    ],
    "saturating": [
        ('loss = softplus(-s).mean()',
         'loss = -softplus(s).mean()'),
    ],
    "sin_first": [
        ('torch.view_as_real(ring)',
         'torch.view_as_real(ring).flip(1)'),
    ],
}
