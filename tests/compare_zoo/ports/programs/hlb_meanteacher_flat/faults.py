# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the flat-vector mean teacher."""

FAULTS = {
    "teacher_first": [
        ('theta -= delta',
         'ema -= (1 - min(0.97, it / (9 + it))) * (ema - theta)'),
        ('ema -= (1 - keep) * (ema - theta)',
         'theta -= delta'),
    ],
    "quick_gelu": [
        ('0.5 * a * (1 + torch.erf(a / math.sqrt(2.0)))',
         'a * torch.sigmoid(1.702 * a)'),
    ],
    "decay_all": [
        ('delta[:n_mat] += lr * 0.05 * theta[:n_mat]',
         'delta += lr * 0.05 * theta'),
    ],
    "class_sum": [
        ('/ goal.numel()',
         '/ len(goal)'),
    ],
    "same_jitter": [
        ('logits(ema, u + jb)',
         'logits(ema, u + ja)'),
    ],
}
