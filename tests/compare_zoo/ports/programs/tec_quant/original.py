# SPDX-License-Identifier: Apache-2.0
"""Quantisation-aware fine-tuning of a pruned keyword spotter: per-channel weights, EMA ranges."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def fake_quant_weight(w, bits=4):
    qmax = 2 ** (bits - 1) - 1
    top = w.detach().abs().flatten(1).max(1).values.clamp(min=1e-8)  # <- channel_scale
    scale = (top / qmax).view(-1, *[1] * (w.dim() - 1))  # <- channel_scale
    return RoundSTE.apply(w / scale).clamp(-qmax - 1, qmax) * scale


class ActObserver(nn.Module):
    def __init__(self, bits=6, momentum=0.2):
        super().__init__()
        self.levels, self.momentum = 2**bits - 1, momentum
        self.register_buffer("hi", torch.tensor(2.0))

    def forward(self, x):
        with torch.no_grad():
            self.hi.mul_(1 - self.momentum).add_(self.momentum * x.max())  # <- range_momentum
        scale = self.hi / self.levels  # <- range_momentum
        q = RoundSTE.apply(x / scale)
        return torch.clamp(q, 0, self.levels) * scale  # <- saturated_gradient


class QConv(nn.Module):
    def __init__(self, cin, cout, k, dilation=1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, k) / (cin * k) ** 0.5)
        self.bias = nn.Parameter(torch.randn(cout) * 0.1)
        self.dilation, self.left = dilation, (k - 1) * dilation
        self.observer = ActObserver()
        keep = self.weight.detach().abs().flatten().sort().values
        self.register_buffer("mask", (self.weight.detach().abs() > keep[len(keep) // 3]).float())

    def forward(self, x):
        w = fake_quant_weight(self.weight * self.mask)
        x = F.pad(x, (self.left, 0))  # <- causal_side
        y = F.conv1d(x, w, self.bias, dilation=self.dilation)  # <- causal_side
        return self.observer(F.relu(y))


class Spotter(nn.Module):
    def __init__(self, n_mels=6, width=10, n_words=5):
        super().__init__()
        self.c1 = QConv(n_mels, width, 3)
        self.c2 = QConv(width, width, 3, dilation=2)
        self.fc = nn.Linear(width, n_words)

    def forward(self, x):
        h = self.c2(self.c1(x))
        last = h[:, :, -1] + h.mean(2)
        return F.linear(last, fake_quant_weight(self.fc.weight, 8), self.fc.bias)


def smoothed_focal(logits, y, gamma=1.5, ls=0.1):
    logp = logits.log_softmax(1)
    dist = F.one_hot(y, logits.size(1)) * (1 - ls) + ls / logits.size(1)
    return -(dist * (1 - logp.exp()) ** gamma * logp).sum(1).mean()


model = Spotter()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(  # <- dampening
    model.parameters(), lr=0.3, momentum=0.8, dampening=0.5, weight_decay=1e-3
)  # <- dampening
gen = torch.Generator().manual_seed(17)
losses = []
for it in range(5):
    mels = torch.randn(8, 6, 15, generator=gen)
    words = torch.randint(0, 5, (8,), generator=gen)
    loss = smoothed_focal(model(mels), words)
    optimizer.zero_grad()
    loss.backward()
    for conv in (model.c1, model.c2):
        conv.weight.grad *= conv.mask
    optimizer.step()  # <- dampening
    losses.append(loss.item())
print(losses)
