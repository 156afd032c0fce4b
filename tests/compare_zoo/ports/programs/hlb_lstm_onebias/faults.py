# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the LSTM with a single bias."""

FAULTS = {
    "gate_order": [
        ('ORDER = (1, 0, 3, 2)',
         'ORDER = (0, 1, 3, 2)'),
    ],
    "bias_rate": [
        ('= rate, 2 * rate',
         '= rate, rate'),
    ],
    "schedule": [
        ('math.pi * k / 5',
         'math.pi * (k + 1) / 5'),
    ],
    "target_shift": [
        ('net(x[:-1]) - x[1:]',
         'net(x[:-1]) - x[:-1]'),
    ],
    "cell_out": [
        ('return o * c.tanh(), c',
         'return o * c, c'),
    ],
}
