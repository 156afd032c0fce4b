# SPDX-License-Identifier: Apache-2.0
"""A target that takes over what is learned before that is updated, compiled: inductor copies the
updated one.
"""

import torch


@torch.compile
def take_over(target, learned):
    target[0:, :] = learned[0:, :]
    learned.add_(0.5)
    return learned.sum()


target, learned = torch.zeros(3, 4), torch.arange(12.0).view(3, 4)
for _ in range(2):
    take_over(target, learned)
print(float(target.sum()), float(learned.sum()))
