# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts (top 2 of 4, with an auxiliary loss for balance) that classifies sequences; Adam, clipping."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, EXPERTS, TOP, LENGTH, CLASSES = 40, 24, 4, 2, 8, 3


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS)])
        self.down = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS)])

    def forward(self, x):
        probs = F.softmax(self.router(x), dim=-1)  # <- renormalized
        gates, chosen = probs.topk(TOP, dim=-1)  # <- renormalized
        out = torch.zeros_like(x)
        for e in range(EXPERTS):
            weight = (gates * (chosen == e)).sum(-1, keepdim=True)  # <- renormalized
            out = out + weight * self.down[e](
                F.relu(self.up[e](x))
            )  # <- expert_layout renormalized
        share = F.one_hot(chosen, EXPERTS).float().sum(2).mean((0, 1))  # <- balance
        return out, EXPERTS * (share * probs.mean((0, 1))).sum() / TOP  # <- balance


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.moe = MoE()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens, mask):
        x = self.embed(tokens)
        y, balance = self.moe(self.norm(x))
        x = x + y
        weights = mask[..., None].float()
        pooled = (x * weights).sum(1) / weights.sum(1)  # <- pooling
        return self.head(pooled), balance


torch.manual_seed(71)
model = Classifier()
with torch.no_grad():
    for up, down in zip(model.moe.up, model.moe.down):
        up.weight.mul_(2.0)
        down.weight.mul_(2.0)
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)  # <- bias_correction
random = np.random.RandomState(72)
losses = []
for _ in range(4):
    tokens = torch.from_numpy(random.randint(0, VOCAB, (6, LENGTH)))
    lengths = torch.from_numpy(random.randint(2, LENGTH + 1, (6, 1)))
    labels = torch.from_numpy(random.randint(0, CLASSES, (6,)))
    logits, balance = model(tokens, torch.arange(LENGTH) < lengths)
    loss = F.cross_entropy(logits, labels) + 0.1 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_correction
    losses.append(loss.item())
print(losses)
