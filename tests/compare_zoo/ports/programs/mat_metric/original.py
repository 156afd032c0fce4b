# SPDX-License-Identifier: Apache-2.0
"""Product embedding: momentum encoder, negative queue, InfoNCE plus semi-hard triplet loss."""

import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

QUEUE, OUT, TEMP, MARGIN = 12, 5, 0.2, 0.4


class ResidualMLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-3)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x):
        h = self.norm(x)  # <- pre_norm
        return x + self.fc2(F.gelu(self.fc1(h), approximate="tanh"))  # <- pre_norm


class Encoder(nn.Module):
    def __init__(self, inp=7, width=8):
        super().__init__()
        self.stem = nn.Linear(inp, width)
        self.blocks = nn.ModuleList([ResidualMLP(width, 12) for _ in range(3)])
        self.proj = nn.Linear(width, OUT)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return F.normalize(self.proj(x), dim=-1)


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query)
        for p in self.key.parameters():
            p.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, OUT), dim=1))
        self.register_buffer("cursor", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def momentum_update(self, m=0.7):
        for pq, pk in zip(self.query.parameters(), self.key.parameters()):
            pk.data = pk.data * m + pq.data * (1 - m)  # <- key_momentum

    @torch.no_grad()
    def enqueue(self, keys):
        at = int(self.cursor)
        self.queue[at : at + len(keys)] = keys  # <- queue_position
        self.cursor[0] = (at + len(keys)) % QUEUE  # <- queue_position

    def forward(self, a, b):
        q = self.query(a)
        self.momentum_update()  # <- key_momentum
        with torch.no_grad():
            k = self.key(b)  # <- key_momentum
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().T  # <- queue_position
        logits = torch.cat([pos, neg], dim=1) / TEMP
        nce = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        self.enqueue(k)
        return nce, q


def semi_hard_triplet(emb, label):
    dist = torch.cdist(emb, emb)
    same = label[:, None] == label[None, :]
    terms = []
    for i in range(len(emb)):
        for j in range(len(emb)):
            if i == j or not same[i, j]:  # <- self_pair
                continue
            d_ap = dist[i, j]
            candidates = dist[i][~same[i]]
            farther = candidates[candidates > d_ap]
            d_an = farther.min() if len(farther) else candidates.max()
            terms.append(F.relu(d_ap - d_an + MARGIN))
    return torch.stack(terms).mean()  # <- self_pair


torch.manual_seed(0)
model = MoCo()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(  # <- rms_epsilon
    model.query.parameters(), lr=0.01, alpha=0.9, eps=1e-2
)  # <- rms_epsilon
gen = torch.Generator().manual_seed(99)
centres = torch.randn(3, 7, generator=gen)
losses = []
for step in range(5):
    label = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    first = centres[label] + 0.6 * torch.randn(8, 7, generator=gen)
    second = centres[label] + 0.6 * torch.randn(8, 7, generator=gen)
    first, second, label = first[:6], second[:6], label[:6]
    nce, q = model(first, second)
    loss = nce + 0.5 * semi_hard_triplet(q, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rms_epsilon
    losses.append(loss.item())
print(losses)
