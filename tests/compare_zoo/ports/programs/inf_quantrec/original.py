# SPDX-License-Identifier: Apache-2.0
"""Shop recommender with simulated int8 inference: weights and activations are rounded to the
integer grid but kept in float. Scored by the softmax mass of the ten shown items and by NDCG."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

ITEMS, DENSE, EMB, TOP, PAD = 80, 5, 16, 10, 0


class FakeQuantLinear(nn.Linear):
    """Weights: signed, one scale a row. Input: unsigned, calibrated range in two buffers."""

    def __init__(self, cin, cout, low, high):
        super().__init__(cin, cout)
        self.register_buffer("low", torch.tensor(low))
        self.register_buffer("high", torch.tensor(high))

    def fake_weight(self):
        scale = self.weight.abs().amax(dim=1, keepdim=True) / 127  # <- rowscale
        return torch.round(self.weight / scale).clamp(-127, 127) * scale  # <- rowscale

    def fake_input(self, x):
        scale = (self.high - self.low) / 255
        zero = torch.round(-self.low / scale)  # <- zeropoint
        q = torch.round(x / scale) + zero
        return (q.clamp(0, 255) - zero) * scale  # <- zeropoint saturate

    def forward(self, x):
        return F.linear(self.fake_input(x), self.fake_weight(), self.bias)  # <- zeropoint


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, EMB, padding_idx=PAD)
        self.fc1 = FakeQuantLinear(EMB + DENSE, 40, -1.5, 2.5)
        self.fc2 = FakeQuantLinear(40, EMB, -0.2, 3.0)
        self.popularity = nn.Parameter(torch.zeros(ITEMS))

    def forward(self, history, dense):
        seen = history != PAD
        emb = self.items(history) * seen[..., None]
        taste = emb.sum(1) / seen.sum(1, keepdim=True).sqrt()  # <- historypool
        x = torch.cat([taste, torch.log1p(dense)], dim=1)
        user = self.fc2(F.elu(self.fc1(x)))
        scores = user @ self.items.weight.T + self.popularity
        scores[:, PAD] = -float("inf")
        return scores.scatter(1, history, -float("inf"))  # <- bought


def ndcg(ranked, wanted):
    total = 0.0
    for row, good in zip(ranked.tolist(), wanted):
        gain = sum(1 / torch.log2(torch.tensor(i + 2.0)) for i, item in enumerate(row)
                   if item in good)
        best = sum(1 / torch.log2(torch.tensor(i + 2.0)) for i in range(min(len(good), TOP)))
        total += float(gain / best)
    return total / len(wanted)


torch.manual_seed(0)
model = Recommender().eval()
with torch.no_grad():
    model.items.weight.normal_(0, 0.8)
    for fc in (model.fc1, model.fc2):
        fc.weight.normal_(0, 0.25).mul_(torch.rand(fc.out_features, 1) * 2 + 0.2)
        fc.bias.normal_(0, 0.3)
    model.popularity.normal_(0, 0.5)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(64)
losses = []
with torch.no_grad():
    for _ in range(4):
        history = torch.randint(1, ITEMS, (8, 9), generator=gen)
        length = torch.randint(3, 10, (8,), generator=gen)
        history[torch.arange(9) >= length[:, None]] = PAD
        dense = torch.rand(8, DENSE, generator=gen) * 6
        wanted = torch.randint(1, ITEMS, (8, 12), generator=gen).tolist()
        scores = model(history, dense)
        mass, ranked = scores.softmax(-1).topk(TOP, dim=1)
        losses.append(2 - mass.sum(1).mean().item() - ndcg(ranked, [set(w) for w in wanted]))
print(losses)
