# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of MAML with a written-out inner gradient."""

FAULTS = {
    "half_grad": [
        ('2.0 / len(x)',
         '1.0 / len(x)'),
    ],
    "bias_mean": [
        ('a2.t() @ d3, d3.sum(0)]',
         'a2.t() @ d3, d3.mean(0)]'),
    ],
    "first_order": [
        ('torch.exp(r) * d for',
         'torch.exp(r) * d.detach() for'),
    ],
    "corrected_max": [
        ('torch.maximum(st[2], st[1])',
         'torch.maximum(st[2], st[1] / (1 - b2 ** self.n))'),
        ('(st[2] / (1 - b2 ** self.n)).sqrt()',
         'st[2].sqrt()'),
    ],
    "query_all": [
        ('predict(fast, x[task, 5:])[0] - y[task, 5:]',
         'predict(fast, x[task])[0] - y[task]'),
    ],
}
