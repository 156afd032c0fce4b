# SPDX-License-Identifier: Apache-2.0
"""The same tagger with a cell written out, looping over time under a mask."""
import sys

import torch
import torch.nn.functional as F

HID, CLASSES = 20, 7


class LSTMDirection:
    """One direction of one layer; the input and recurrent kernels are stacked."""

    def __init__(self, sd, layer, backward):
        tail = f"l{layer}" + ("_reverse" if backward else "")
        self.backward = backward
        kernel = torch.cat([sd[f"lstm.weight_ih_{tail}"], sd[f"lstm.weight_hh_{tail}"]], dim=1)
        self.kernel = kernel.t().contiguous().requires_grad_()
        # two biases are two parameters: the optimizer steps each of them
        self.bias_x = sd[f"lstm.bias_ih_{tail}"].clone().requires_grad_()
        self.bias_h = sd[f"lstm.bias_hh_{tail}"].clone().requires_grad_()

    def parameters(self):
        return [self.kernel, self.bias_x, self.bias_h]

    def cell(self, x, h, c):
        z = torch.cat([x, h], dim=-1) @ self.kernel + self.bias_x + self.bias_h
        i, f, g, o = z.split(HID, dim=-1)  # <- gate_order
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # <- gate_order
        return torch.sigmoid(o) * torch.tanh(c), c  # <- gate_order

    def run(self, xs, mask):
        h = c = xs.new_zeros(xs.shape[1], HID)
        order = range(len(xs))
        outputs = [None] * len(xs)
        for t in reversed(order) if self.backward else order:
            new_h, new_c = self.cell(xs[t], h, c)
            live = mask[t].unsqueeze(-1)  # <- back_start
            h = torch.where(live, new_h, h)  # <- back_start
            c = torch.where(live, new_c, c)  # <- back_start
            outputs[t] = h
        return torch.stack(outputs)  # <- back_start


class TaggerLoop:
    def __init__(self, sd):
        self.embedding = sd["embed.weight"].clone().requires_grad_()
        self.layers = [[LSTMDirection(sd, n, way) for way in (False, True)] for n in (0, 1)]
        self.out_w = sd["head.weight"].clone().requires_grad_()
        self.out_b = sd["head.bias"].clone().requires_grad_()

    def parameters(self):
        inner = [p for pair in self.layers for one in pair for p in one.parameters()]
        return [self.embedding, *inner, self.out_w, self.out_b]

    def __call__(self, words, mask):
        xs = F.embedding(words, self.embedding, padding_idx=0)
        for pair in self.layers:
            xs = torch.cat([one.run(xs, mask) for one in pair], dim=-1)
        return xs @ self.out_w.t() + self.out_b


def batch_of(gen, size=6):
    """Time-major words, tags and mask."""
    rows = []
    for _ in range(size):
        n = int(torch.randint(3, 12, (1,), generator=gen))
        rows.append(torch.randint(1, 70, (n,), generator=gen))
    longest = max(map(len, rows))
    words = torch.stack([F.pad(row, (0, longest - len(row))) for row in rows], dim=1)
    tags = (words * 3 + torch.arange(longest)[:, None]) % CLASSES
    return words, tags, words > 0


def loss_of(scores, tags, mask):
    importance = torch.ones(CLASSES).index_fill(0, torch.tensor([0]), 0.3)
    w = importance[tags] * mask  # <- class_mean
    nll = F.cross_entropy(scores.permute(1, 2, 0), tags.t(), reduction="none").t()
    return (w * nll).sum() / w.sum()  # <- class_mean


@torch.no_grad()
def rmsprop(params, squares, limit=0.05, rate=0.01):
    norm = torch.stack([p.grad.pow(2).sum() for p in params]).sum().sqrt()  # <- clip_whole
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)  # <- clip_whole
    for p, s in zip(params, squares):
        g = p.grad * factor  # <- clip_whole
        s.mul_(0.9).add_(0.1 * g * g)
        p.sub_(rate * g / (s.sqrt() + 1e-6))  # <- rms_inside clip_whole
        p.grad = None


tagger = TaggerLoop(torch.load(sys.argv[1], weights_only=True))
params = tagger.parameters()
squares = [torch.zeros_like(p) for p in params]
gen = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    words, tags, mask = batch_of(gen)
    loss = loss_of(tagger(words, mask), tags, mask)
    loss.backward()
    rmsprop(params, squares)  # <- rms_inside
    losses.append(loss.item())
print(losses)
