# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of soft actor-critic with stacked critics."""

FAULTS = {
    "tau": [
        ('alpha=rate)',
         'alpha=1 - rate)'),
    ],
    "jacobian": [
        ('- f.logsigmoid(2 * u) - f.logsigmoid(-2 * u)',
         '- f.logsigmoid(2 * u)'),
    ],
    "done_mask": [
        ('alive = ~(torch.rand',
         'alive = (torch.rand'),
    ],
    "entropy_goal": [
        ('(3.0 - lp.detach())',
         '(-3.0 - lp.detach())'),
    ],
    "critic_rate": [
        ('"lr": 2e-3}',
         '"lr": 1e-3}'),
    ],
}
