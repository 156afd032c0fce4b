# SPDX-License-Identifier: Apache-2.0
"""Padding-free Llama: one packed row with a block-diagonal mask, torch.func gradients, fused projections."""
import sys
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value

torch.set_num_threads(1)

V, D, FF, NL, NH, NKV = 53, 32, 40, 2, 4, 2
HD = D // NH


class PackedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wqkv = nn.Parameter(torch.empty(D, (NH + 2 * NKV) * HD))
        self.wo = nn.Parameter(torch.empty(NH, HD, D))

    def forward(self, x, phase, allowed):
        q, k, v = (x @ self.wqkv).view(-1, NH + 2 * NKV, HD).split([NH, NKV, NKV], dim=1)
        q, k = turn(q, phase), turn(k, phase)
        q = q.view(-1, NKV, NH // NKV, HD)                       # grouped queries, keys not repeated
        s = torch.einsum("tkge,ske->kgts", q, k) * HD ** -0.5
        a = torch.where(allowed, s, s.new_tensor(-1e30)).softmax(-1)
        y = torch.einsum("kgts,ske->tkge", a, v).reshape(-1, NH, HD)
        return torch.einsum("the,hed->td", y, self.wo)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(2, D))             # both norms in one tensor
        self.mix = PackedAttention()
        self.gate_up = nn.Linear(D, 2 * FF, bias=False)
        self.down = nn.Linear(FF, D, bias=False)

    def forward(self, x, phase, allowed):
        x = x + self.mix(F.rms_norm(x, (D,), eps=1e-5) * self.scale[0], phase, allowed)
        up, gate = self.gate_up(F.rms_norm(x, (D,), eps=1e-5) * self.scale[1]).chunk(2, -1)
        return x + self.down(up * gate * torch.sigmoid(gate))


class PackedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.empty(V, D))
        self.stack = nn.ModuleList(Layer() for _ in range(NL))
        self.last = nn.Parameter(torch.empty(D))
        self.readout = nn.Linear(D, V, bias=False)

    def forward(self, tokens, pos, allowed, src, dst):
        freq = 10000.0 ** (-torch.arange(0, HD, 2) / HD)
        phase = torch.polar(torch.ones(len(pos), HD // 2), pos[:, None] * freq)[:, None]
        x = self.table.index_select(0, tokens)
        for layer in self.stack:
            x = layer(x, phase, allowed)
        x = F.rms_norm(x.index_select(0, src), (D,), self.last, 1e-5)
        return F.cross_entropy(self.readout(x), tokens[dst])


def turn(x, phase):
    z = torch.complex(*x.unflatten(-1, (2, HD // 2)).unbind(-2)) * phase
    return torch.cat([z.real, z.imag], -1)


def convert(sd):
    out = OrderedDict(table=sd["model.embed_tokens.weight"], last=sd["model.norm.weight"])
    out["readout.weight"] = sd["lm_head.weight"]
    for i in range(NL):
        s, d = f"model.layers.{i}.", f"stack.{i}."
        out[d + "scale"] = torch.stack([sd[s + "input_layernorm.weight"], sd[s + "post_attention_layernorm.weight"]])
        out[d + "mix.wqkv"] = torch.cat([sd[s + f"self_attn.{n}_proj.weight"] for n in "qkv"]).t()
        out[d + "mix.wo"] = sd[s + "self_attn.o_proj.weight"].t().reshape(NH, HD, D)
        out[d + "gate_up.weight"] = torch.cat([sd[s + "mlp.up_proj.weight"], sd[s + "mlp.gate_proj.weight"]])
        out[d + "down.weight"] = sd[s + "mlp.down_proj.weight"]
    return OrderedDict((k, v.contiguous().clone()) for k, v in out.items())


def pack(seqs):
    """Longest first, end to end, no padding."""
    seqs = sorted(seqs, key=len, reverse=True)
    doc = torch.cat([torch.full((len(s),), i) for i, s in enumerate(seqs)])
    pos = torch.cat([torch.arange(len(s)) for s in seqs])
    n = torch.arange(len(doc))
    allowed = (doc[:, None] == doc[None]) & (n[:, None] >= n[None])
    dst = n[pos > 0]
    return torch.cat(seqs), pos, allowed, dst - 1, dst


model = PackedLM()
weights = convert(torch.load(sys.argv[1]))
model.load_state_dict(weights)
objective = grad_and_value(lambda w, batch: functional_call(model, w, batch))
decays = {k: 0.0 if k == "last" or k.endswith("scale") else 0.05 for k in weights}
state = {k: (torch.zeros_like(w), torch.zeros_like(w)) for k, w in weights.items()}

gen = torch.Generator().manual_seed(77)
losses = []
for step in range(1, 6):
    sizes = torch.randint(4, 13, (5,), generator=gen).tolist()
    seqs = [torch.randint(1, V, (n,), generator=gen) for n in sizes]
    grads, value = objective(weights, pack(seqs))
    for k, w in weights.items():
        m, v = (0.9 * state[k][0] + 0.1 * grads[k], 0.999 * state[k][1] + 0.001 * grads[k] ** 2)
        state[k] = (m, v)
        update = (m / (1 - 0.9 ** step)) / ((v / (1 - 0.999 ** step)).sqrt() + 1e-7)
        weights[k] = w - 1.5e-3 * (update + decays[k] * w)
    losses.append(float(value))

print(losses)
