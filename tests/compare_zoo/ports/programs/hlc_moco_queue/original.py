# SPDX-License-Identifier: Apache-2.0
"""MoCo-style training: query encoder, momentum key encoder, ring-buffer queue, Siamese term."""
import copy
import sys
import torch
from torch import nn
import torch.nn.functional as F


class MoCo(nn.Module):
    def __init__(self, d=10, h=24, e=8, k=32, m=0.9, temp=0.2):
        super().__init__()
        self.m, self.temp, self.k = m, temp, k
        self.query = nn.Sequential(  # <- variance
            nn.Linear(d, h), nn.LayerNorm(h), nn.ReLU(), nn.Linear(h, e))  # <- variance
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(e, k), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def update_key(self):
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.data = k.data * self.m + q.data * (1 - self.m)  # <- ema

    @torch.no_grad()
    def enqueue(self, keys):
        p, n = int(self.ptr), keys.shape[0]
        self.queue[:, p:p + n] = keys.T  # <- enqueue
        self.ptr[0] = (p + n) % self.k  # <- enqueue

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)  # <- variance
        with torch.no_grad():
            self.update_key()
            k = F.normalize(self.key(b), dim=1)  # <- variance
        pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", q, self.queue.clone())
        logits = torch.cat([pos, neg], 1) / self.temp  # <- denominator
        nce = F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))  # <- denominator
        q2 = F.normalize(self.query(b), dim=1)  # <- variance
        siam = (1 - F.cosine_similarity(q, q2)).mean()
        self.enqueue(k)
        return nce + 0.3 * siam


torch.manual_seed(0)
net = MoCo()
torch.save(net.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(5)
opt = torch.optim.SGD(net.query.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)  # <- cosine
losses = []
for _ in range(5):
    x = torch.randn(8, 10, generator=g)
    a = x + 0.2 * torch.randn(8, 10, generator=g)
    b = x + 0.2 * torch.randn(8, 10, generator=g)
    loss = net(a, b)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()  # <- cosine
    sched.step()  # <- cosine
    losses.append(loss.item())
print(losses)
