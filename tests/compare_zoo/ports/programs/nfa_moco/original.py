# SPDX-License-Identifier: Apache-2.0
"""Momentum contrast with a key queue on vectors, plus a linear probe on frozen features."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, d_in=8, width=16, d_out=6):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(d_in, width), nn.BatchNorm1d(width), nn.GELU(),  # <- running_biased
            nn.Linear(width, width), nn.GELU())
        self.projector = nn.Linear(width, d_out)

    def forward(self, x):
        return F.normalize(self.projector(self.backbone(x)), dim=1)  # <- running_biased


class MoCo(nn.Module):
    def __init__(self, queue_len=24, m=0.9, temp=0.3):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query)
        for p in self.key.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(queue_len, 6), dim=1))
        self.ptr = 0
        self.m, self.temp = m, temp

    @torch.no_grad()
    def momentum_update(self):
        for pq, pk in zip(self.query.parameters(), self.key.parameters()):
            pk.data = pk.data * self.m + pq.data * (1 - self.m)  # <- keys_stale

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[self.ptr:self.ptr + n] = keys  # <- queue_side
        self.ptr = (self.ptr + n) % self.queue.shape[0]  # <- queue_side

    def forward(self, xq, xk):
        q = self.query(xq)  # <- running_biased
        with torch.no_grad():
            self.momentum_update()  # <- keys_stale
            k = self.key(xk)  # <- keys_stale
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().T  # <- queue_side negative_scale
        logits = torch.cat([pos, neg], dim=1) / self.temp  # <- negative_scale
        self.enqueue(k)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


torch.manual_seed(0)
moco, probe = MoCo(), nn.Linear(16, 3)
torch.save({**moco.state_dict(), **{"probe." + k: v for k, v in probe.state_dict().items()}},
           sys.argv[1])
decay = [p for p in moco.query.parameters() if p.ndim > 1]  # <- groups
no_decay = [p for p in moco.query.parameters() if p.ndim <= 1]  # <- groups
opt = torch.optim.SGD([{"params": decay, "weight_decay": 1e-2}, {"params": no_decay}],  # <- groups
                      lr=0.1, momentum=0.9)
opt_probe = torch.optim.AdamW(probe.parameters(), lr=1e-2, eps=1e-5, weight_decay=0.1)

gen = torch.Generator().manual_seed(50)
losses = []
for step in range(5):
    x = torch.randn(8, 8, generator=gen)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    v1 = x + 0.2 * torch.randn(8, 8, generator=gen)
    v2 = x + 0.2 * torch.randn(8, 8, generator=gen)
    loss = moco(v1, v2)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- groups

    moco.query.eval()              # running statistics for the features
    with torch.no_grad():
        feats = moco.query.backbone(x)  # <- running_biased
    moco.query.train()
    probe_loss = F.cross_entropy(probe(feats), y)
    opt_probe.zero_grad()
    probe_loss.backward()
    opt_probe.step()
    losses.append(loss.item() + probe_loss.item())

print(losses)
