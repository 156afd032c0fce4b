# SPDX-License-Identifier: Apache-2.0
"""Multi-label classifier with positive-class weights; SAM inside Lookahead around SGD."""
import sys
import torch
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = base(self.param_groups, **kw)

    @torch.no_grad()
    def first_step(self):
        grads = [p.grad.norm() for gr in self.param_groups for p in gr["params"]]  # <- ascent
        scale = self.param_groups[0]["rho"] / (torch.stack(grads).norm() + 1e-12)  # <- ascent
        for gr in self.param_groups:
            for p in gr["params"]:
                self.state[p]["old"] = p.clone()
                p.add_(p.grad * scale)  # <- ascent
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for gr in self.param_groups:
            for p in gr["params"]:
                p.copy_(self.state[p]["old"])
        self.base.step()
        self.zero_grad()


class Lookahead:
    def __init__(self, params, k=2, alpha=0.5):
        self.params, self.k, self.alpha, self.count = list(params), k, alpha, 0
        self.slow = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def step(self):
        self.count += 1  # <- lookahead
        if self.count % self.k == 0:  # <- lookahead
            for s, p in zip(self.slow, self.params):
                s.add_(p - s, alpha=self.alpha)  # <- lookahead
                p.copy_(s)  # <- lookahead


class Tagger(nn.Module):
    def __init__(self, vocab=30, d=12, tags=6):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, d, mode="mean")  # <- duplicates
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 20)
        self.fc2 = nn.Linear(20, tags)

    def forward(self, ids):
        return self.fc2(torch.nn.functional.gelu(  # <- duplicates gelu_grad
            self.fc1(self.norm(self.bag(ids)))))  # <- duplicates gelu_grad


torch.manual_seed(0)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(13)
data = [(torch.randint(0, 30, (16, 7), generator=g),
         (torch.rand(16, 6, generator=g) < torch.linspace(0.15, 0.6, 6)).float()) for _ in range(5)]
every = torch.cat([y for _, y in data])
pos_weight = (every == 0).sum(0) / (every == 1).sum(0)  # <- pos_weight
criterion = nn.BCEWithLogitsLoss(weight=torch.linspace(0.5, 1.5, 6),  # <- pos_weight
                                 pos_weight=pos_weight)  # <- pos_weight
sam = SAM(model.parameters(), torch.optim.SGD, rho=0.1, lr=0.1, momentum=0.9, weight_decay=1e-3)
look = Lookahead(model.parameters())
losses = []
for ids, y in data:
    loss = criterion(model(ids), y)  # <- pos_weight
    loss.backward()
    sam.first_step()
    criterion(model(ids), y).backward()  # <- pos_weight
    sam.second_step()
    look.step()
    losses.append(loss.item())
print(losses)
