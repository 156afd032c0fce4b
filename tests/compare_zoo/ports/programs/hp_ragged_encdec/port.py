# SPDX-License-Identifier: Apache-2.0
"""The same translation model with packed data: every micro-batch is one row of tokens with segment numbers."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)
BUDGET, HEADS = 45, 3


class Lin(nn.Module):
    def __init__(self, w, b):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(w.t().contiguous()), nn.Parameter(b.clone())

    def forward(self, x):
        return torch.addmm(self.bias, x, self.kernel)


class Norm(nn.Module):
    def __init__(self, w, b):
        super().__init__()
        self.scale, self.shift = nn.Parameter(w.clone()), nn.Parameter(b.clone())

    def forward(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.shift, (x - mean) * (var + 1e-5).rsqrt(), self.scale)


class Attend(nn.Module):
    """Query projection apart, keys and values in one; rows are packed tokens, so there is no batch axis."""

    def __init__(self, sd, at):
        super().__init__()
        w, b, d = sd[at + "in_proj_weight"], sd[at + "in_proj_bias"], sd[at + "in_proj_weight"].shape[1]
        self.query, self.pair = Lin(w[:d], b[:d]), Lin(w[d:], b[d:])
        self.merge = Lin(sd[at + "out_proj.weight"], sd[at + "out_proj.bias"])

    def forward(self, x, source, allowed):
        q = self.query(x).unflatten(1, (HEADS, -1))
        k, v = self.pair(source).unflatten(1, (2, HEADS, -1)).unbind(1)
        score = torch.einsum("qhc,khc->hqk", q, k) * q.shape[-1] ** -0.5
        weight = score.masked_fill(~allowed, -1e9).softmax(-1)
        return self.merge(torch.einsum("hqk,khc->qhc", weight, v).flatten(1))


class Packed(nn.Module):
    def __init__(self, sd):
        super().__init__()
        e, d = "encoder.layers.0.", "decoder.layers.0."
        lin = lambda n: Lin(sd[n + ".weight"], sd[n + ".bias"])
        norm = lambda n: Norm(sd[n + ".weight"], sd[n + ".bias"])
        self.readout = lin("generator")
        self.tables = nn.ParameterList([sd["src_embed.weight"].clone(), sd["tgt_embed.weight"].clone(),
                                        sd["positions.weight"].clone()])
        self.norms = nn.ModuleDict({"e1": norm(e + "norm1"), "e2": norm(e + "norm2"), "d1": norm(d + "norm1"),
                                    "d2": norm(d + "norm2"), "d3": norm(d + "norm3")})
        self.att = nn.ModuleDict({"enc": Attend(sd, e + "self_attn."), "dec": Attend(sd, d + "self_attn."),
                                  "cross": Attend(sd, d + "multihead_attn.")})
        self.ffn = nn.ModuleDict({s: nn.Sequential(lin(p + "linear1"), nn.ReLU(), lin(p + "linear2"))
                                  for s, p in (("enc", e), ("dec", d))})

    def forward(self, src, tgt):
        (si, sp, ss), (ti, tp, ts) = src, tgt
        n = self.norms
        x = self.tables[0][si] + self.tables[2][sp]
        y = n["e1"](x)
        x = x + self.att["enc"](y, y, ss[:, None] == ss)
        memory = x + self.ffn["enc"](n["e2"](x))
        x = self.tables[1][ti] + self.tables[2][tp]
        y = n["d1"](x)
        x = x + self.att["dec"](y, y, (ts[:, None] == ts) & (tp[:, None] >= tp))
        x = x + self.att["cross"](n["d2"](x), memory, ts[:, None] == ss)
        x = x + self.ffn["dec"](n["d3"](x))
        return self.readout(x)


def pack(rows):
    ids = torch.cat(rows)
    place = torch.cat([torch.arange(len(r)) for r in rows])
    segment = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(r) for r in rows]))
    return ids, place, segment


def stream():
    gen = torch.Generator().manual_seed(32)
    for _ in range(60):
        n, m = torch.randint(3, 12, (2,), generator=gen).tolist()
        yield torch.randint(2, 24, (n,), generator=gen), torch.randint(2, 24, (m,), generator=gen)


def micro_batches(batch):
    """Longest first; a micro-batch closes when its tokens would go over the budget."""
    held, size = [], 0
    for s, t in sorted(batch, key=lambda p: -len(p[0]) - len(p[1])):
        if held and size + len(s) + len(t) > BUDGET:
            yield held
            held, size = [], 0
        held.append((s, t))
        size += len(s) + len(t)
    yield held


net = Packed(torch.load(sys.argv[1]))
opt = torch.optim.Adam([{"params": [p]} for p in net.parameters()], lr=2e-3, betas=(0.9, 0.98), eps=1e-6, foreach=True)
source = stream()
losses = []
for _ in range(5):
    batch = [next(source) for _ in range(12)]
    nll, seen = 0.0, 0
    for part in micro_batches(batch):
        wanted = torch.cat([t for _, t in part])
        given = [torch.cat([torch.tensor([1]), t[:-1]]) for _, t in part]
        logp = net(pack([s for s, _ in part]), pack(given)).log_softmax(-1)
        loss = -logp[torch.arange(len(wanted)), wanted].sum()
        loss.backward()
        nll, seen = nll + loss.item(), seen + len(wanted)
    for p in net.parameters():
        p.grad.div_(seen)
    opt.step()
    opt.zero_grad(set_to_none=False)
    losses.append(nll / seen)
print(losses)
