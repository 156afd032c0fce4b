# SPDX-License-Identifier: Apache-2.0
"""BiLSTM-CRF tagger with its own cell: fused kernels, masked scans, one transition table with START and STOP."""
import sys
from dataclasses import dataclass, field

import torch
from torch import nn

torch.set_num_threads(1)

TAGS, UNITS = 5, 8
START, STOP = TAGS, TAGS + 1


@dataclass
class Batch:
    words: torch.Tensor  # (batch, time), 0 at the end
    tags: torch.Tensor
    size: torch.Tensor
    steps: range = field(init=False)

    def __post_init__(self):
        self.steps = range(self.words.shape[1])
        self.real = torch.stack([self.size > t for t in self.steps], 1)


class Direction(nn.Module):
    """One LSTM direction: [x, h] @ kernel, where padding leaves the state as it was."""

    def __init__(self, sd, suffix, backwards):
        super().__init__()
        w = torch.cat([sd["lstm.weight_ih_" + suffix], sd["lstm.weight_hh_" + suffix]], 1)
        b = torch.stack([sd["lstm.bias_ih_" + suffix], sd["lstm.bias_hh_" + suffix]])
        self.kernel, self.bias, self.backwards = nn.Parameter(w.t().contiguous()), nn.Parameter(b), backwards

    def cell(self, x, h, c):
        z = torch.cat([x, h], 1) @ self.kernel + self.bias.sum(0)
        i, f, g, o = z.split(UNITS, 1)  # <- gates_ifog
        c = c * f.sigmoid() + i.sigmoid() * g.tanh()  # <- gates_ifog
        return o.sigmoid() * c.tanh(), c  # <- gates_ifog

    def forward(self, x, batch):
        h = c = x.new_zeros(len(x), UNITS)
        outs = [None] * len(batch.steps)
        for t in reversed(batch.steps) if self.backwards else batch.steps:
            keep = batch.real[:, t, None]
            h_new, c_new = self.cell(x[:, t], h, c)  # <- gates_ifog
            h, c = torch.where(keep, h_new, h), torch.where(keep, c_new, c)  # <- reads_padding
            outs[t] = h * keep  # <- reads_padding
        return torch.stack(outs, 1)


class Chain(nn.Module):
    """Linear-chain likelihood; table[a, b] is the score of going from a to b."""

    def __init__(self, sd):
        super().__init__()
        table = torch.zeros(TAGS + 2, TAGS + 2)
        table[:TAGS, :TAGS] = sd["crf.transitions"]
        table[START, :TAGS], table[:TAGS, STOP] = sd["crf.start_transitions"], sd["crf.end_transitions"]
        self.table = nn.Parameter(table)

    def gold(self, emit, batch):
        n = len(emit)
        path = torch.cat([torch.full((n, 1), START), batch.tags.masked_fill(~batch.real, STOP)], 1)
        path = torch.cat([path, torch.full((n, 1), STOP)], 1)
        hops = self.table[path[:, :-1], path[:, 1:]]
        valid = path[:, :-1] != STOP  # <- gold_without_end
        spoken = emit.gather(2, batch.tags[..., None])[..., 0]
        return hops.mul(valid).sum(1) + spoken.mul(batch.real).sum(1)  # <- gold_without_end

    def total(self, emit, batch):
        inner = self.table[:TAGS, :TAGS]
        alpha, at_end = self.table[START, :TAGS] + emit[:, 0], []
        for t in batch.steps:
            if t:
                alpha = (alpha[:, :, None] + inner[None]).logsumexp(1) + emit[:, t]
            at_end.append((alpha + self.table[:TAGS, STOP]).logsumexp(1))
        return torch.stack(at_end, 1).gather(1, batch.size[:, None] - 1)[:, 0]

    def forward(self, emit, batch):
        nll = self.total(emit, batch) - self.gold(emit, batch)  # <- gold_without_end
        return nll.sum() / len(nll)  # <- token_mean


class Tagger(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.lookup = nn.Parameter(sd["embedding.weight"].clone())
        self.ahead = nn.ModuleList([Direction(sd, f"l{k}", False) for k in range(2)])
        self.back = nn.ModuleList([Direction(sd, f"l{k}_reverse", True) for k in range(2)])
        self.emit = nn.Parameter(torch.cat([sd["hidden2tag.weight"], sd["hidden2tag.bias"][:, None]], 1))
        self.chain = Chain(sd)

    def forward(self, batch):
        x = self.lookup[batch.words] * batch.real[..., None]
        for a, b in zip(self.ahead, self.back):
            x = torch.cat([a(x, batch), b(x, batch)], -1)  # <- reads_padding
        return self.chain(x @ self.emit[:, :-1].t() + self.emit[:, -1], batch)  # <- token_mean


class Momentum:
    def __init__(self, params):
        self.params = list(params)
        self.speed = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def __call__(self, grads):
        total = torch.sqrt(sum(g.pow(2).sum() for g in grads))  # <- clip_each
        for p, v, g in zip(self.params, self.speed, grads):
            g = g * (0.5 / (total + 1e-6)).clamp(max=1.0)  # <- clip_each
            p -= 0.3 * v.mul_(0.8).add_(g)


def read(n):
    gen = torch.Generator().manual_seed(77)
    for _ in range(n):
        size = torch.randint(3, 10, (4,), generator=gen)
        words, tags = torch.zeros(2, 4, int(size.max()), dtype=torch.long)
        for k, m in enumerate(size):
            words[k, :m] = torch.randint(1, 30, (int(m),), generator=gen)
        for k, m in enumerate(size):
            noise = torch.randint(0, 2, (int(m),), generator=gen)
            tags[k, :m] = (3 * words[k, :m] + noise).remainder(TAGS)
        yield Batch(words, tags, size)


tagger = Tagger(torch.load(sys.argv[1]))
update = Momentum(tagger.parameters())
losses = []
for batch in read(5):
    nll = tagger(batch)
    update(torch.autograd.grad(nll, update.params))  # <- clip_each
    losses.append(float(nll.detach()))
print(losses)
