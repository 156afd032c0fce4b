# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the energy network with hand-propagated derivatives."""

FAULTS = {
    "skip_slope": [
        ('back = c + (c * dt) @ self.B',
         'back = (c * dt) @ self.B'),
    ],
    "warm_momentum": [
        ('return self.b1 * (1 - 0.5 * 0.96 ** (k * self.psi))',
         'return self.b1'),
    ],
    "probe_axis": [
        ('normalize(v, dim=1)',
         'normalize(v, dim=0)'),
    ],
    "force_mean": [
        ('(gap_f ** 2).sum(1)',
         '(gap_f ** 2).mean(1)'),
    ],
    "soft_bend": [
        ('s * (1 - s) * z1d * z1d',
         's * z1d * z1d'),
    ],
}
