# SPDX-License-Identifier: Apache-2.0
"""Tagger with unrolled GRU cells run in both directions at once, and a batched CRF."""
import sys

import torch

torch.set_num_threads(1)

V, K, E, H, L = 45, 5, 12, 10, 9


def load(path):
    """Both directions share tensors with a leading axis of 2; gates are split on axis 1."""
    sd = torch.load(path)

    def both(kind):
        return torch.stack([sd[f"gru.{kind}_l0"], sd[f"gru.{kind}_l0_reverse"]]).unflatten(1, (3, H))

    p = {
        "embed": sd["embed.weight"],
        "wx": both("weight_ih").transpose(-1, -2),
        "wh": both("weight_hh").transpose(-1, -2),
        "bx": both("bias_ih"),
        "bh": both("bias_hh"),
        "emit": sd["emit.weight"].T,
        "emit_b": sd["emit.bias"],
        # one square table: row K is the start state, column K the end state
        "chain": torch.zeros(K + 1, K + 1),
    }
    p["chain"][:K, :K] = sd["crf.transitions"]
    p["chain"][K, :K], p["chain"][:K, K] = sd["crf.start"], sd["crf.end"]
    return {k: v.clone().contiguous().requires_grad_() for k, v in p.items()}


def cell(p, x, h):
    """x: (2, batch, E), h: (2, batch, H)."""
    gx = torch.einsum("dbe,dgeh->gdbh", x, p["wx"]) + p["bx"].transpose(0, 1)[:, :, None]
    gh = torch.einsum("dbk,dgkh->gdbh", h, p["wh"]) + p["bh"].transpose(0, 1)[:, :, None]
    r = torch.sigmoid(gx[0] + gh[0])
    z = torch.sigmoid(gx[1] + gh[1])
    n = torch.tanh(gx[2] + r * gh[2])  # <- reset_early
    return n + z * (h - n)


def flip_index(lengths):
    """Position t of the reversed row; positions past the end stay where they are."""
    t = torch.arange(L).expand(len(lengths), L)
    return torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)  # <- backward_over_padding


def encode(p, words, lengths):
    forth = p["embed"][words]
    index = flip_index(lengths)[..., None]
    back = forth.gather(1, index.expand(-1, -1, E))  # <- backward_over_padding
    x = torch.stack([forth, back])
    h = torch.zeros(2, len(words), H)
    seq = []
    for t in range(L):
        h = cell(p, x[:, :, t], h)
        seq.append(h)
    out = torch.stack(seq, dim=2)
    return torch.cat([out[0], out[1].gather(1, index.expand(-1, -1, H))], dim=-1) @ p["emit"] + p["emit_b"]


def crf_nll(chain, emissions, tags, lengths):
    live = torch.arange(L) < lengths[:, None]
    inner, start, end = chain[:K, :K], chain[K, :K], chain[:K, K]
    final = tags.gather(1, lengths[:, None] - 1).squeeze(1)  # <- end_of_padding
    gold = (emissions.gather(2, tags[..., None]).squeeze(2) * live).sum(1)
    gold = gold + (inner[tags[:, :-1], tags[:, 1:]] * live[:, 1:]).sum(1)
    gold = gold + start[tags[:, 0]] + end[final]  # <- end_of_padding
    alpha = start + emissions[:, 0]
    for t in range(1, L):
        moved = (alpha[:, :, None] + inner + emissions[:, t, None, :]).logsumexp(1)
        alpha = torch.where(live[:, t, None], moved, alpha)
    return (alpha + end).logsumexp(1) - gold


class HeavyBall:
    def __init__(self, params, lr, mu, gamma):
        self.params, self.lr, self.mu, self.gamma = params, lr, mu, gamma
        self.vel = {k: torch.zeros_like(v) for k, v in params.items()}

    @torch.no_grad()
    def step(self):
        for name, w in self.params.items():
            g = w.grad if name == "chain" else w.grad + 1e-3 * w
            v = self.vel[name].mul_(self.mu)
            v += g  # <- rate_in_velocity
            w -= self.lr * v  # <- rate_in_velocity
            w.grad = None
        self.lr *= self.gamma


def stream():
    gen = torch.Generator().manual_seed(1234)
    for _ in range(5):
        lengths = torch.randint(2, L + 1, (6,), generator=gen)
        lengths[0] = L
        words = torch.randint(1, V, (6, L), generator=gen)
        tags = (words * 7 + words.roll(1, 1)) % K
        dead = torch.arange(L) >= lengths[:, None]
        yield words.masked_fill(dead, 0), tags.masked_fill(dead, 0), lengths


params = load(sys.argv[1])
opt = HeavyBall(params, lr=0.3, mu=0.9, gamma=0.8)
losses = []
for words, tags, lengths in stream():
    each = crf_nll(params["chain"], encode(params, words, lengths), tags, lengths)
    loss = each.sum() / lengths.sum()  # <- sentence_average
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
