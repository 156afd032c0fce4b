# SPDX-License-Identifier: Apache-2.0
"""Two-tower retrieval, query against documents in the batch; InfoNCE loss and recall at 1."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(31)


class TwoTower(nn.Module):
    def __init__(self, vocab=90, dim=16, out=12):
        super().__init__()
        self.words = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.query = nn.Sequential(nn.Linear(dim, out), nn.LayerNorm(out))
        self.doc = nn.Sequential(nn.Linear(dim, out), nn.LayerNorm(out))
        self.log_temp = nn.Parameter(torch.tensor(1.2))

    def forward(self, q, d):
        q = F.normalize(self.query(self.words(q)), dim=-1)
        d = F.normalize(self.doc(self.words(d)), dim=-1)
        return q @ d.T * self.log_temp.exp()


net = TwoTower()
net.doc[0].load_state_dict(net.query[0].state_dict())
for part in (net.query, net.doc):
    nn.init.normal_(part[1].weight, 1.0, 0.3)
    nn.init.normal_(part[1].bias, 0.0, 0.2)
torch.save(net.state_dict(), sys.argv[1])
net.eval()

g = torch.Generator().manual_seed(121)
losses = []
with torch.no_grad():
    for b in range(4):
        docs = torch.randint(0, 90, (10, 9), generator=g)
        queries = torch.cat([docs[:, :3], torch.randint(0, 90, (10, 2), generator=g)], 1)
        sim = net(queries, docs)
        truth = torch.arange(10)
        losses.append(F.cross_entropy(sim, truth).item())
        hit = (sim.argmax(1) == truth).sum().item() / 10
        print(f"batch {b}: info-nce {losses[-1]:.4f} recall@1 {hit:.2f}")
print(losses)
