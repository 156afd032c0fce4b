# SPDX-License-Identifier: Apache-2.0
"""Forward algorithm of a hidden Markov model in log space: impossible states have log-probability
-inf.
"""

import torch
from torch import nn

torch.manual_seed(0)
transition = nn.Parameter(torch.randn(3, 3))
emission = nn.Parameter(torch.randn(3, 6))
optimizer = torch.optim.Adam([transition, emission], lr=0.05)
start = torch.tensor([0.0, float("-inf"), float("-inf")])
for step in range(4):
    words = torch.randint(6, (7,))
    moves, words_given = transition.log_softmax(1), emission.log_softmax(1)
    alpha = start + words_given[:, words[0]]
    for word in words[1:]:
        alpha = torch.logsumexp(alpha[:, None] + moves, dim=0) + words_given[:, word]
    loss = -torch.logsumexp(alpha, 0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
