# SPDX-License-Identifier: Apache-2.0
"""The same capsules by einsum: one convolution for all primary capsules, classes before routes,
squashing by a norm, the loss of both terms in one function, torch's Adam in its fused form.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SIZE, ITEMS, CHANNELS, KINDS = 14, 6, 12, 4
GROUPS, LOW, HIGH = 3, 4, 6
CELLS = GROUPS * 9


def shrink(vectors):
    """Keeps the direction, maps the length to [0, 1)."""
    energy = torch.einsum("...d,...d->...", vectors, vectors)[..., None]
    factor = energy / (1 + energy)  # <- squash
    return factor * (vectors * torch.rsqrt(energy + 1e-8))  # <- squash


class Routing(nn.Module):
    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds
        self.votes = nn.Parameter(torch.zeros(KINDS, CELLS, LOW, HIGH))

    def forward(self, low):
        votes = torch.einsum("nrl,krlh->nkrh", low, self.votes)
        agreement = votes.new_zeros(votes.shape[:3])
        for _ in range(self.rounds - 1):
            high = self.combine(votes, agreement)
            agreement = agreement + torch.einsum("nkrh,nkh->nkr", votes, high)  # <- rounds
        return self.combine(votes, agreement)

    def combine(self, votes, agreement):
        coupling = agreement.softmax(dim=1)  # <- coupling rounds
        return shrink(torch.einsum("nkr,nkrh->nkh", coupling, votes))  # <- coupling rounds


class CapsuleNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, CHANNELS, 5)
        self.low = nn.Conv2d(CHANNELS, LOW * GROUPS, 5, stride=2)
        self.routing = Routing(rounds=3)
        self.rebuild1 = nn.Linear(KINDS * HIGH, 32)
        self.rebuild2 = nn.Linear(32, 48)
        self.rebuild3 = nn.Linear(48, SIZE * SIZE)

    def forward(self, pictures):
        maps = self.low(torch.clamp_min(self.features(pictures), 0))
        low = maps.unflatten(1, (LOW, GROUPS)).permute(0, 2, 3, 4, 1)  # <- grouped
        return self.routing(shrink(low.flatten(1, 3)))

    def picture(self, high, which):
        kept = torch.zeros_like(high)
        rows = torch.arange(len(which))
        kept[rows, which] = high[rows, which]
        h = torch.relu(self.rebuild1(kept.flatten(1)))
        h = torch.relu(self.rebuild2(h))
        return torch.sigmoid(self.rebuild3(h))


def objective(net, pictures, which):
    high = net(pictures)
    lengths = high.norm(dim=2)
    right = lengths.gather(1, which[:, None])
    short = (0.9 - right).clamp(min=0) ** 2  # <- squares
    long = (lengths - 0.1).clamp(min=0) ** 2
    wrong = long.scatter(1, which[:, None], 0.0)
    margin = short.sum(1) + 0.5 * wrong.sum(1)  # <- absent
    rebuilt = net.picture(high, which)
    errors = functional.mse_loss(rebuilt, pictures.flatten(1), reduction="none")
    return (margin + 0.0005 * errors.sum(1)).mean()  # <- pixels


def mapped(old):
    new = {
        "features.weight": old["conv.weight"],
        "features.bias": old["conv.bias"],
        "routing.votes": old["digits.W"][0].permute(1, 0, 3, 2),
    }
    for kind in ("weight", "bias"):
        parts = [old[f"primary.capsules.{i}.{kind}"] for i in range(LOW)]
        new["low." + kind] = torch.cat(parts)
        for number, layer in ((1, 0), (2, 2), (3, 4)):
            new[f"rebuild{number}.{kind}"] = old[f"decoder.{layer}.{kind}"]
    return new


def examples():
    rng = np.random.default_rng(17)
    pictures = torch.tensor(rng.random((3, ITEMS, 1, SIZE, SIZE), dtype=np.float32))
    return list(zip(pictures, torch.tensor(rng.integers(0, KINDS, (3, ITEMS)))))


net = CapsuleNetwork()
net.load_state_dict(mapped(torch.load(sys.argv[1])))
optimizer = torch.optim.Adam(net.parameters(), lr=0.002, fused=True)
losses = []
for pictures, which in examples():
    loss = objective(net, pictures, which)
    loss.backward()  # <- stale
    optimizer.step()  # <- stale
    optimizer.zero_grad()  # <- stale
    losses.append(loss.item())
