# SPDX-License-Identifier: Apache-2.0
"""The forecaster with recurrent cells written out, four time steps to a checkpoint, and attention recomputed too."""
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
CHUNK, HEADS = 4, 4


class Cell(nn.Module):
    """Gates (update, reset) in one matrix over [x, h]; the candidate's two halves kept apart."""

    def __init__(self, sd, tag):
        super().__init__()
        wi, wh = sd["rnn.weight_ih_" + tag], sd["rnn.weight_hh_" + tag]
        bi, bh = sd["rnn.bias_ih_" + tag], sd["rnn.bias_hh_" + tag]
        self.size = n = wh.shape[1]
        zr = lambda t: torch.cat([t[n:2 * n], t[:n]])
        self.gates = nn.Parameter(torch.cat([zr(wi), zr(wh)], 1))
        self.gate_in, self.gate_rec = nn.Parameter(zr(bi)), nn.Parameter(zr(bh))
        self.cand_x, self.cand_h = nn.Linear(wi.shape[1], n), nn.Linear(n, n)
        self.cand_x.load_state_dict({"weight": wi[2 * n:], "bias": bi[2 * n:]})
        self.cand_h.load_state_dict({"weight": wh[2 * n:], "bias": bh[2 * n:]})

    def chunk(self, h, *xs):
        outs = []
        for x in xs:
            both = torch.cat([x, h], 1) @ self.gates.t() + (self.gate_in + self.gate_rec)
            z, r = torch.sigmoid(both).split(self.size, 1)
            n = torch.tanh(self.cand_x(x) + r * self.cand_h(h))
            h = n + z * (h - n)
            outs.append(h)
        return torch.stack(outs), h

    def forward(self, xs, backwards):
        order = xs.flip(0) if backwards else xs
        h, out = xs.new_zeros(xs.shape[1], self.size), []
        for block in order.split(CHUNK):
            states, h = checkpoint(self.chunk, h, *block.unbind(0), use_reentrant=False, preserve_rng_state=False)
            out.append(states)
        out = torch.cat(out)
        return out.flip(0) if backwards else out


class Model(nn.Module):
    def __init__(self, sd):
        super().__init__()
        # the backward direction comes first here, for both layers
        self.cells = nn.ModuleDict({f"{l}{d}": Cell(sd, f"l{l}" + ("_reverse" if d == "b" else ""))
                                    for l in (0, 1) for d in "bf"})
        self.weights = nn.ParameterDict({
            "embed": sd["embed.weight"].t().contiguous(), "embed_b": sd["embed.bias"],
            "gain": sd["norm.weight"], "shift": sd["norm.bias"],
            "out": sd["attn.out_proj.weight"], "out_b": sd["attn.out_proj.bias"],
            "f1": sd["ffn.0.weight"], "f1_b": sd["ffn.0.bias"], "f2": sd["ffn.2.weight"], "f2_b": sd["ffn.2.bias"],
            "ask": sd["query"], "read": sd["readout.weight"][0], "read_b": sd["readout.bias"]})
        w, b = sd["attn.in_proj_weight"].chunk(3), sd["attn.in_proj_bias"].chunk(3)
        for n, wi, bi in zip("qkv", w, b):
            self.weights[n] = wi.clone()
            if n != "k":       # a bias on the keys shifts all scores alike: left out
                self.weights[n + "_b"] = bi.clone()

    def attend(self, h):
        w = self.weights
        h = nn.functional.layer_norm(h, h.shape[-1:], w["gain"], w["shift"])
        q = (w["ask"] @ w["q"].t() + w["q_b"]).unflatten(-1, (HEADS, -1))
        k = (h @ w["k"].t()).unflatten(-1, (HEADS, -1))
        v = (h @ w["v"].t() + w["v_b"]).unflatten(-1, (HEADS, -1))
        p = torch.einsum("phc,tnhc->nhpt", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
        return torch.einsum("nhpt,tnhc->nphc", p, v).flatten(2) @ w["out"].t() + w["out_b"]

    def tail(self, z):
        w = self.weights
        y = z @ w["f1"].t() + w["f1_b"]
        return ((z + (y * y.sigmoid()) @ w["f2"].t() + w["f2_b"]) * w["read"]).sum(-1) + w["read_b"]

    def forward(self, x):                       # time first
        h = torch.tanh(x @ self.weights["embed"] + self.weights["embed_b"])
        for layer in "01":
            back = self.cells[layer + "b"](h, True)
            h = torch.cat([self.cells[layer + "f"](h, False), back], -1)
        z = self.weights["ask"] + checkpoint(self.attend, h, use_reentrant=False)
        return checkpoint(self.tail, z, use_reentrant=False)


def waves(seed, steps):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        freq = torch.rand(12, 5, generator=gen) * 0.5 + 0.1
        phase = torch.rand(12, 5, generator=gen) * 6.28
        noise = torch.randn(12, 24, 5, generator=gen).transpose(0, 1)
        full = (torch.arange(24)[:, None, None] * freq + phase).sin() + noise * 0.1
        yield full[:20], full[20:].sum(-1).t()


model = Model(torch.load(sys.argv[1]))
opt = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.95, eps=1e-4, momentum=0.5, foreach=True)
losses = []
for x, y in waves(82, 5):
    gap = (model(x) - y).abs()
    loss = torch.where(gap < 0.5, gap.square(), gap - 0.25).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    opt.zero_grad()
    losses.append(loss.item())
print(losses)
