# SPDX-License-Identifier: Apache-2.0
"""Attentive sequence transducer over time-major tensors, with a recurrent cell of its own."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)

WORDS, E, N = 23, 12, 16
START, STOP = 1, 2


class Cell(nn.Module):
    """Gated unit kept as three gates, inputs applied for all times at once."""

    def __init__(self, sd, prefix, suffix=""):
        super().__init__()
        w_in, w_rec = sd[f"{prefix}weight_ih{suffix}"], sd[f"{prefix}weight_hh{suffix}"]
        b_in, b_rec = sd[f"{prefix}bias_ih{suffix}"], sd[f"{prefix}bias_hh{suffix}"]
        for gate, w, u, b, c in zip("rzn", w_in.chunk(3), w_rec.chunk(3), b_in.chunk(3), b_rec.chunk(3)):
            setattr(self, "w" + gate, nn.Parameter(w.T.clone()))
            setattr(self, "u" + gate, nn.Parameter(u.T.clone()))
            setattr(self, "b" + gate, nn.Parameter(b.clone()))
            setattr(self, "c" + gate, nn.Parameter(c.clone()))

    def inputs(self, x):
        return x @ self.wr + self.br, x @ self.wz + self.bz, x @ self.wn + self.bn

    def step(self, ready, h):
        xr, xz, xn = ready
        r = torch.sigmoid(xr + h @ self.ur + self.cr)
        z = torch.sigmoid(xz + h @ self.uz + self.cz)
        new = torch.tanh(xn + r * (h @ self.un + self.cn))  # <- reset_before_matmul
        return new + z * (h - new)


class Transducer(nn.Module):
    def __init__(self, checkpoint):
        super().__init__()
        sd = torch.load(checkpoint)
        self.read = Cell(sd, "encoder.rnn.", "_l0")
        self.write = Cell(sd, "decoder.cell.")

        def own(name):
            return nn.Parameter(sd[name].clone())

        self.src_table, self.tgt_table = own("encoder.embedding.weight"), own("decoder.embedding.weight")
        self.wq, self.wk = own("decoder.attention.query_proj.weight"), own("decoder.attention.key_proj.weight")
        self.ve = nn.Parameter(sd["decoder.attention.energy.weight"][0].clone())
        self.wb, self.bb = own("bridge.weight"), own("bridge.bias")
        wo = sd["decoder.out.weight"]
        self.wo_state, self.wo_ctx = nn.Parameter(wo[:, :N].clone()), nn.Parameter(wo[:, N:].clone())
        self.bo = own("decoder.out.bias")

    def encode(self, src, live):
        gates = self.read.inputs(self.src_table[src])
        h, memory = torch.zeros(src.shape[1], N), []
        for t in range(src.shape[0]):
            fresh = self.read.step([g[t] for g in gates], h)  # <- reset_before_matmul
            h = torch.where(live[t][:, None], fresh, h)  # <- state_past_end
            memory.append(h)
        return torch.stack(memory), h  # <- state_past_end

    def glance(self, h, keys, memory, live):
        scores = torch.tanh(keys + h @ self.wq.T) @ self.ve  # <- keys_detached
        scores = scores + torch.zeros(scores.shape).masked_fill(~live, float("-inf"))  # <- attention_to_padding
        mix = scores.softmax(0)  # <- attention_to_padding
        return torch.einsum("tb,tbn->bn", mix, memory)

    def forward(self, src, live, given):
        memory, last = self.encode(src, live)
        keys = memory @ self.wk.T  # <- keys_detached
        h, out = torch.tanh(last @ self.wb.T + self.bb), []
        for word in given:
            context = self.glance(h, keys, memory, live)
            x = torch.cat([self.tgt_table[word], context], 1)
            h = self.write.step(self.write.inputs(x), h)  # <- reset_before_matmul
            out.append(h @ self.wo_state.T + context @ self.wo_ctx.T + self.bo)
        return torch.stack(out)


def columns(rows, fill=0):
    grid = torch.full((max(map(len, rows)), len(rows)), fill)
    for b, row in enumerate(rows):
        grid[: len(row), b] = torch.tensor(row)
    return grid


def minibatches(size=6, steps=5):
    g = torch.Generator().manual_seed(17)
    for _ in range(steps):
        asked, told = [], []
        for _ in range(size):
            n = torch.randint(3, 10, (1,), generator=g).item()
            q = torch.randint(3, WORDS, (n,), generator=g).tolist()
            asked.append(q)
            told.append([START] + q[::-1][: max(2, n - 2)] + [STOP])
        src, tgt = columns(asked), columns(told)
        yield src, src > 0, tgt[:-1], tgt[1:]


def token_loss(logits, wanted):
    scored = (wanted > 0).float()
    surprise = logits.logsumexp(2) - logits.gather(2, wanted[..., None]).squeeze(2)
    return (surprise * scored).sum() / scored.sum()  # <- mean_per_sentence


net = Transducer(sys.argv[1])
weights = list(net.parameters())
adam = torch.optim.Adam(weights, lr=1e-2)
losses = []
for src, live, given, wanted in minibatches():
    loss = token_loss(net(src, live, given), wanted)  # <- mean_per_sentence
    for w, g in zip(weights, torch.autograd.grad(loss, weights)):
        w.grad = g
    total = torch.stack([w.grad.norm() for w in weights]).norm()
    if total > 0.5:
        for w in weights:
            w.grad *= 0.5 / (total + 1e-6)
    adam.step()
    losses.append(loss.item())
print(losses)
