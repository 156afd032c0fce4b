# SPDX-License-Identifier: Apache-2.0
"""Click-through model: bags of ids, factorisation machine, cross network, two optimizers."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

FIELDS = {"user": 20, "item": 30, "query": 15}
DIM = 6
DENSE = 4


class FieldBag(nn.Module):
    def __init__(self, size, mode):
        super().__init__()
        self.bag = nn.EmbeddingBag(size, DIM, mode=mode)  # <- bag_mean
        self.wide = nn.EmbeddingBag(size, 1, mode="sum")
        nn.init.normal_(self.bag.weight, std=0.3)
        nn.init.normal_(self.wide.weight, std=0.1)

    def forward(self, ids, offsets):
        return self.bag(ids, offsets), self.wide(ids, offsets)  # <- bag_mean


class CrossLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(width) * 0.2)
        self.bias = nn.Parameter(torch.randn(width) * 0.05)

    def forward(self, x0, x):
        scalar = (x * self.kernel).sum(dim=1, keepdim=True)
        return x0 * scalar + self.bias + x  # <- cross_base


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fields = nn.ModuleDict({f: FieldBag(n, "mean") for f, n in FIELDS.items()})
        width = DIM * len(FIELDS) + DENSE
        self.cross = nn.ModuleList([CrossLayer(width) for _ in range(2)])
        self.deep = nn.Sequential(nn.Linear(width, 12), nn.LeakyReLU(0.05), nn.Linear(12, 4))
        self.top = nn.Linear(width + 4, 1)

    def forward(self, bags, dense):
        vecs, wides = zip(*[self.fields[f](*bags[f]) for f in FIELDS])
        fm = 0.0
        for i in range(len(vecs)):
            for j in range(i + 1, len(vecs)):
                fm = fm + (vecs[i] * vecs[j]).sum(1)  # <- fm_half
        x0 = torch.cat(vecs + (torch.log1p(dense),), dim=1)
        x = x0
        for layer in self.cross:
            x = layer(x0, x)  # <- cross_base
        logit = self.top(torch.cat([x, self.deep(x0)], dim=1)).squeeze(1)
        return logit + fm + torch.cat(wides, 1).sum(1)  # <- fm_half


def make_batch(gen, batch=8):
    bags = {}
    for f, n in FIELDS.items():
        counts = torch.randint(1, 4, (batch,), generator=gen)
        ids = torch.randint(0, n, (int(counts.sum()),), generator=gen)
        offsets = torch.cumsum(counts, 0) - counts
        bags[f] = (ids, offsets)
    dense = torch.rand(batch, DENSE, generator=gen) * 5
    clicks = (torch.rand(batch, generator=gen) < 0.3).float()
    weight = torch.rand(batch, generator=gen) + 0.5
    return bags, dense, clicks, weight


torch.manual_seed(0)
model = ClickModel()
torch.save(model.state_dict(), sys.argv[1])
sparse_params = list(model.fields.parameters())
dense_params = [p for n, p in model.named_parameters() if not n.startswith("fields")]
sparse_opt = torch.optim.Adagrad(  # <- adagrad_start
    sparse_params, lr=0.1, initial_accumulator_value=0.1, eps=1e-6
)  # <- adagrad_start
dense_opt = torch.optim.SGD(dense_params, lr=0.05, momentum=0.8)
POS_WEIGHT = torch.tensor(2.5)  # <- positive_weight
gen = torch.Generator().manual_seed(5)
losses = []
for step in range(5):
    bags, dense, clicks, weight = make_batch(gen)
    logit = model(bags, dense)
    per_row = F.binary_cross_entropy_with_logits(  # <- positive_weight
        logit, clicks, pos_weight=POS_WEIGHT, reduction="none"
    )  # <- positive_weight
    loss = (per_row * weight).sum() / weight.sum()
    sparse_opt.zero_grad()
    dense_opt.zero_grad()
    loss.backward()
    sparse_opt.step()  # <- adagrad_start
    dense_opt.step()
    losses.append(loss.item())
print(losses)
