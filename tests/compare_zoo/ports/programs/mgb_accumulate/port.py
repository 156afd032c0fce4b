# SPDX-License-Identifier: Apache-2.0
"""Attention seq2seq with hand-written GRU steps; micro-batches, loss scale, clipping, Adagrad."""
import sys

import torch
from torch import nn

MICRO, SCALE = 4, 256.0


class GRUStep(nn.Module):
    def __init__(self, w_ih, w_hh, b_ih, b_hh):
        super().__init__()
        self.w_x, self.w_h = nn.Parameter(w_ih.T.clone()), nn.Parameter(w_hh.T.clone())
        self.b_x, self.b_h = nn.Parameter(b_ih.clone()), nn.Parameter(b_hh.clone())

    def forward(self, x, h):
        d = h.shape[-1]
        gx = x @ self.w_x + self.b_x
        gates = gx[:, :2 * d] + h @ self.w_h[:, :2 * d] + self.b_h[:2 * d]
        r, z = gates.sigmoid().split(d, -1)
        inner = r * (h @ self.w_h[:, 2 * d:] + self.b_h[2 * d:])  # <- reset_gate
        n = torch.tanh(gx[:, 2 * d:] + inner)  # <- reset_gate
        return n + z * (h - n)  # <- reset_gate


class Translator(nn.Module):
    def __init__(self, w):
        super().__init__()
        rnn = [w[f"encoder.rnn.{k}_l0"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        cell = [w[f"decoder.cell.{k}"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        self.enc, self.dec = GRUStep(*rnn), GRUStep(*cell)
        self.src_table = nn.Parameter(w["encoder.embedding.weight"])
        self.tgt_table = nn.Parameter(w["decoder.embedding.weight"])
        self.wq = nn.Parameter(w["decoder.query.weight"].T)
        self.wk = nn.Parameter(w["decoder.key.weight"].T)
        self.v = nn.Parameter(w["decoder.energy.weight"][0])
        self.w_out = nn.Parameter(w["decoder.out.weight"].T)
        self.b_out = nn.Parameter(w["decoder.out.bias"])

    def encode(self, src, real):
        h = torch.zeros(len(src), self.v.numel())
        states = []
        for t in range(src.shape[1]):
            new = self.enc(self.src_table[src[:, t]], h)  # <- reset_gate carry
            h = torch.where(real[:, t:t + 1], new, h)  # <- carry
            states.append(h)  # <- carry
        return torch.stack(states, 1), h  # <- carry

    def forward(self, src, tgt):
        """Summed negative log-likelihood of the real target tokens."""
        real = src.ne(0)
        memory, h = self.encode(src, real)  # <- carry
        keys = torch.einsum("bsd,de->bse", memory, self.wk)
        token = torch.ones(len(src), dtype=torch.long)
        total = 0.0
        for gold in tgt.T:
            energy = torch.tanh(keys + (h @ self.wq).unsqueeze(1)) @ self.v
            energy = energy.exp() * real
            context = torch.einsum("bs,bsd->bd", energy / energy.sum(1, keepdim=True), memory)
            h = self.dec(torch.cat([self.tgt_table[token], context], 1), h)  # <- reset_gate
            scores = torch.cat([h, context], 1) @ self.w_out + self.b_out
            nll = scores.logsumexp(1) - scores.gather(1, gold[:, None])[:, 0]
            total = total + nll[gold != 0].sum()  # <- token_mean
            token = gold
        return total


def synthetic(g):
    src_len = torch.randint(2, 8, (12,), generator=g)
    tgt_len = torch.randint(1, 7, (12,), generator=g)
    src = torch.randint(2, 24, (12, 7), generator=g)
    tgt = torch.randint(2, 24, (12, 6), generator=g)
    return src * (torch.arange(7) < src_len[:, None]), tgt * (torch.arange(6) < tgt_len[:, None])


net = Translator(torch.load(sys.argv[1], weights_only=True))
params = list(net.parameters())
sums = [torch.full_like(p, 0.1) for p in params]  # <- accumulator
lr = 0.2
source = torch.Generator().manual_seed(314)
losses = []
for _ in range(4):
    src, tgt = synthetic(source)
    tokens = tgt.count_nonzero()  # <- token_mean
    running = 0.0
    for part_src, part_tgt in zip(src.chunk(MICRO), tgt.chunk(MICRO)):
        part = net(part_src, part_tgt) / tokens  # <- token_mean
        (part * SCALE).backward()
        running += part.item()
    with torch.no_grad():
        for p in params:
            p.grad /= SCALE  # <- clip_scaled
        norm = torch.cat([p.grad.flatten() for p in params]).norm()  # <- clip_scaled
        shrink = min(1.0, 0.4 / (norm.item() + 1e-6))  # <- clip_scaled
        for p, s in zip(params, sums):
            g = p.grad * shrink  # <- clip_scaled
            s.addcmul_(g, g)  # <- accumulator
            p.sub_(lr * g / (s.sqrt() + 1e-8))  # <- accumulator clip_scaled
            p.grad = None
    lr *= 0.9
    losses.append(running)
print(losses)
