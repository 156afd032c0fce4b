# SPDX-License-Identifier: Apache-2.0
"""Recogniser one utterance at a time, GRU and CTC recursions written out, masks multiplied in."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)

F_IN, F_CONV, H, V, B, STEPS = 10, 12, 9, 7, 4, 5
LOW = -1e30


class Direction(nn.Module):
    """GRU in one direction; gates in the order update, reset, candidate."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Parameter(torch.empty(3, F_CONV, H))
        self.rec = nn.Parameter(torch.empty(3, H, H))
        self.bias_in = nn.Parameter(torch.empty(3, H))
        self.bias_rec = nn.Parameter(torch.empty(3, H))

    def forward(self, x):
        pre = torch.einsum("tf,gfh->tgh", x, self.inp) + self.bias_in
        h, seen = x.new_zeros(H), []
        for at in pre:
            z_r, r_r, n_r = torch.einsum("h,ghk->gk", h, self.rec) + self.bias_rec
            z, r = torch.sigmoid(at[0] + z_r), torch.sigmoid(at[1] + r_r)
            h = torch.lerp(torch.tanh(at[2] + r * n_r), h, z)
            seen.append(h)
        return torch.stack(seen)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(3 * F_IN, F_CONV)
        self.norm = nn.LayerNorm(F_CONV)
        self.ahead, self.back = Direction(), Direction()
        self.out_ahead = nn.Linear(H, V)
        self.out_back = nn.Linear(H, V, bias=False)

    def forward(self, x):
        frames = nn.functional.pad(x, (0, 0, 1, 1)).unfold(0, 3, 2).flatten(1)
        x = self.norm(self.front(frames)).relu()
        logits = self.out_ahead(self.ahead(x)) + self.out_back(self.back(x.flip(0)).flip(0))
        return logits - logits.logsumexp(-1, keepdim=True)


def ctc(logp, target):
    """-log P(target) by the forward recursion over the target with blanks between."""
    ext = torch.zeros(2 * len(target) + 1, dtype=torch.long)
    ext[1::2] = target
    jump = torch.zeros(len(ext), dtype=torch.bool)
    jump[2:] = (ext[2:] != 0) & (ext[2:] != ext[:-2])
    emit = logp[:, ext]
    alpha = torch.full((len(ext),), LOW)
    alpha = torch.cat([emit[0, :2], alpha[2:]])
    low = torch.full((2,), LOW)
    for row in emit[1:]:
        one = torch.cat([low[:1], alpha[:-1]])
        two = torch.where(jump, torch.cat([low, alpha[:-2]]), LOW)
        alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + row
    return -torch.logsumexp(alpha[-2:], 0)


def weights(net, old):
    order = [1, 0, 2]                                    # torch holds reset, update, new
    with torch.no_grad():
        net.front.weight.copy_(old["conv.weight"].flatten(1))
        net.front.bias.copy_(old["conv.bias"])
        net.norm.weight.copy_(old["norm.weight"]), net.norm.bias.copy_(old["norm.bias"])
        for d, tail in ((net.ahead, "l0"), (net.back, "l0_reverse")):
            d.inp.copy_(old["gru.weight_ih_" + tail].view(3, H, F_CONV)[order].mT)
            d.rec.copy_(old["gru.weight_hh_" + tail].view(3, H, H)[order].mT)
            d.bias_in.copy_(old["gru.bias_ih_" + tail].view(3, H)[order])
            d.bias_rec.copy_(old["gru.bias_hh_" + tail].view(3, H)[order])
        net.out_ahead.weight.copy_(old["classifier.weight"][:, :H])
        net.out_back.weight.copy_(old["classifier.weight"][:, H:])
        net.out_ahead.bias.copy_(old["classifier.bias"])


def draw(high, rng):
    return torch.randint(0, high + 1, (1,), generator=rng).item()


def spans(rng, limit, size):
    width = draw(limit, rng)
    start = draw(size - width, rng)
    at = torch.arange(size)
    return ((at < start) | (at >= start + width)).float()


def masked(x, rng):
    keep = spans(rng, 3, F_IN).expand_as(x)
    for _ in range(2):
        keep = keep * spans(rng, 4, len(x))[:, None]
    return x * keep


net = Net()
weights(net, torch.load(sys.argv[1]))
rng = torch.Generator().manual_seed(8)
speech = []
for _ in range(10):
    size, words = draw(17, rng) + 22, draw(3, rng) + 2
    speech.append((torch.randn(size, F_IN, generator=rng), torch.randint(1, V, (words,), generator=rng)))

rng = torch.Generator().manual_seed(9)
opt = torch.optim.Adam(net.parameters(), betas=(0.9, 0.98), eps=1e-9, foreach=False)
losses = []
for i in range(1, STEPS + 1):
    ids = torch.randperm(len(speech), generator=rng)[:B].tolist()
    batch = [(masked(speech[j][0], rng), speech[j][1]) for j in ids]
    total = 0.0
    for x, target in sorted(batch, key=lambda pair: len(pair[0])):     # shortest first, as the buckets come
        part = ctc(net(x), target) / (len(target) * B)
        part.backward()
        total += part.item()
    square = sum(p.grad.square().sum() for p in net.parameters())
    shrink = min(1.0, 2.0 / (square.sqrt().item() + 1e-6))
    for p in net.parameters():
        p.grad *= shrink
    opt.param_groups[0]["lr"] = 0.2 * F_CONV ** -0.5 * min(i ** -0.5, i * 3 ** -1.5)
    opt.step()
    opt.zero_grad()
    losses.append(total)

print(losses)
