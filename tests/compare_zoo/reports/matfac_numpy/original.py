# SPDX-License-Identifier: Apache-2.0
"""Rating prediction by biased matrix factorisation; mean squared error per batch of pairs."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)


class MatrixFactorization(nn.Module):
    def __init__(self, users=50, items=80, k=12):
        super().__init__()
        self.user, self.item = nn.Embedding(users, k), nn.Embedding(items, k)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mu = nn.Parameter(torch.tensor(3.1))

    def forward(self, u, i):
        dot = (self.user(u) * self.item(i)).sum(-1)
        return self.mu + dot + self.user_bias(u)[:, 0] + self.item_bias(i)[:, 0]


net = MatrixFactorization()
for emb in (net.user, net.item, net.user_bias, net.item_bias):
    nn.init.normal_(emb.weight, std=0.5)
torch.save(net.state_dict(), sys.argv[1])
net.eval()

gen = torch.Generator().manual_seed(105)
losses = []
with torch.no_grad():
    for _ in range(5):
        u = torch.randint(0, 50, (24,), generator=gen)
        i = torch.randint(0, 80, (24,), generator=gen)
        rating = torch.rand(24, generator=gen) * 4 + 1
        pred = net(u, i)
        losses.append(F.mse_loss(pred, rating).item())
print("mse per batch:", [round(x, 4) for x in losses])
print(losses)
