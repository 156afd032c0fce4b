# SPDX-License-Identifier: Apache-2.0
"""A small Evoformer: row attention with pair bias, outer product mean, triangle multiplication; the
block is checkpointed, gradients are clipped example by example and added up; averaged weights.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

AMINO, SEQS, LENGTH, C_M, C_Z, HEADS, BINS, EXAMPLES = 9, 4, 7, 16, 12, 2, 6, 2
HEAD = C_M // HEADS


class RowAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_m, self.norm_z = nn.LayerNorm(C_M), nn.LayerNorm(C_Z)
        self.q, self.k, self.v = (nn.Linear(C_M, C_M, bias=False) for _ in range(3))
        self.pair_bias = nn.Linear(C_Z, HEADS, bias=False)
        self.gate, self.out = nn.Linear(C_M, C_M), nn.Linear(C_M, C_M)

    def forward(self, m, z):
        m = self.norm_m(m)
        q, k, v = (f(m).unflatten(2, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / HEAD**0.5
        bias = self.pair_bias(self.norm_z(z)).permute(2, 0, 1)  # <- pair_bias
        scores = scores + bias.unsqueeze(0)  # <- pair_bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(SEQS, LENGTH, C_M)
        return self.out(torch.sigmoid(self.gate(m)) * y)


class OuterProductMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(C_M)
        self.a, self.b = nn.Linear(C_M, 5), nn.Linear(C_M, 5)
        self.out = nn.Linear(25, C_Z)

    def forward(self, m):
        m = self.norm(m)
        a, b = self.a(m), self.b(m)
        outer = (a[:, :, None, :, None] * b[:, None, :, None, :]).mean(0)  # <- outer
        return self.out(outer.flatten(2))  # <- outer


class TriangleMultiplication(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_in, self.norm_out = nn.LayerNorm(C_Z), nn.LayerNorm(C_Z)
        self.left, self.right = nn.Linear(C_Z, C_Z), nn.Linear(C_Z, C_Z)
        self.left_gate, self.right_gate = nn.Linear(C_Z, C_Z), nn.Linear(C_Z, C_Z)
        self.gate, self.out = nn.Linear(C_Z, C_Z), nn.Linear(C_Z, C_Z)

    def forward(self, z):
        z = self.norm_in(z)
        a = torch.sigmoid(self.left_gate(z)) * self.left(z)
        b = torch.sigmoid(self.right_gate(z)) * self.right(z)
        x = torch.matmul(a.permute(2, 0, 1), b.permute(2, 1, 0)).permute(1, 2, 0)  # <- outgoing
        return torch.sigmoid(self.gate(z)) * self.out(self.norm_out(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.row, self.opm = RowAttention(), OuterProductMean()
        self.triangle = TriangleMultiplication()

    def forward(self, m, z):
        m = m + self.row(m, z)
        z = z + self.opm(m)
        return m, z + self.triangle(z)


class Evoformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_msa = nn.Embedding(AMINO + 1, C_M)
        self.left, self.right = nn.Embedding(AMINO + 1, C_Z), nn.Embedding(AMINO + 1, C_Z)
        self.relpos = nn.Embedding(7, C_Z)
        self.block = Block()
        self.masked_msa, self.distogram = nn.Linear(C_M, AMINO), nn.Linear(C_Z, BINS)

    def forward(self, msa, hidden, bins):
        seen = msa.masked_fill(hidden, AMINO)
        m = self.embed_msa(seen)
        place = torch.arange(LENGTH)
        offset = (place[:, None] - place[None, :]).clamp(-3, 3) + 3
        z = self.left(seen[0])[:, None] + self.right(seen[0])[None] + self.relpos(offset)
        m, z = checkpoint(self.block, m, z, use_reentrant=False)
        pairs = self.distogram(z)
        pairs = pairs + pairs.transpose(0, 1)
        loss = F.cross_entropy(self.masked_msa(m)[hidden], msa[hidden])
        return loss + 0.5 * F.cross_entropy(pairs.flatten(0, 1), bins.flatten())


def example(generator):
    msa = torch.randint(0, AMINO, (SEQS, LENGTH), generator=generator)
    hidden = torch.rand(SEQS, LENGTH, generator=generator) < 0.3
    return msa, hidden, torch.randint(0, BINS, (LENGTH, LENGTH), generator=generator)


torch.manual_seed(101)
model = Evoformer()
torch.save(model.state_dict(), sys.argv[1])
average = copy.deepcopy(model)
parameters = list(model.parameters())
optimizer = torch.optim.Adam(parameters, lr=0.02, eps=1e-3, amsgrad=True)
generator = torch.Generator().manual_seed(102)
losses = []
for step in range(3):
    total, sums = 0.0, [torch.zeros_like(p) for p in parameters]
    for _ in range(EXAMPLES):
        optimizer.zero_grad()
        loss = model(*example(generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)  # <- clip
        for one, p in zip(sums, parameters):
            one.add_(p.grad, alpha=1 / EXAMPLES)  # <- clip
        total += loss.item() / EXAMPLES
    for one, p in zip(sums, parameters):
        p.grad = one
    optimizer.step()
    keep = min(0.9, (1 + step) / (10 + step))  # <- average
    with torch.no_grad():
        for slow, p in zip(average.parameters(), parameters):
            slow.lerp_(p, 1 - keep)  # <- average
    losses.append(total)
with torch.no_grad():
    losses.append(average(*example(generator)).item())
