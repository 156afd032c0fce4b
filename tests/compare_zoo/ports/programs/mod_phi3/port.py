# SPDX-License-Identifier: Apache-2.0
"""Phi-3 as one would write it in a notebook: interleaved rotary on complex numbers (queries and
keys reordered at loading), separate projections, an explicit band of the attention.
"""

import math
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Args:
    vocab: int = 41
    d: int = 48
    ff: int = 64
    n_layer: int = 3
    n_head: int = 4
    n_kv: int = 2
    rot: int = 6
    theta: float = 1000.0
    window: int = 5
    eps: float = 1e-5

    @property
    def hd(self):
        return self.d // self.n_head


def interleave(w, n, args):
    """Rows of a halved rotary layout into pairs; what does not turn stays where it is."""
    w = w.view(n, args.hd, -1)
    turning, still = w[:, : args.rot], w[:, args.rot :]
    turning = (
        turning.view(n, 2, args.rot // 2, -1).transpose(1, 2).reshape(n, args.rot, -1)
    )  # <- rotary
    return torch.cat([turning, still], dim=1).reshape(n * args.hd, -1)


def freqs_cis(args, length):
    freqs = 1.0 / (args.theta ** (torch.arange(0, args.rot, 2).float() / args.rot))
    angles = torch.outer(torch.arange(length).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def turn(x, cis, rot):
    """x: batch, time, heads, head size"""
    z = torch.view_as_complex(x[..., :rot].float().unflatten(-1, (-1, 2)))  # <- rotary
    z = torch.view_as_real(z * cis[None, :, None]).flatten(-2)  # <- rotary
    return torch.cat([z, x[..., rot:]], -1)  # <- rotary


class Norm(nn.Module):
    def __init__(self, d, eps):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.g, self.eps)


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.wq = nn.Linear(a.d, a.n_head * a.hd, bias=False)
        self.wk = nn.Linear(a.d, a.n_kv * a.hd, bias=False)
        self.wv = nn.Linear(a.d, a.n_kv * a.hd, bias=False)
        self.wo = nn.Linear(a.n_head * a.hd, a.d, bias=False)

    def forward(self, x, cis, band):
        a = self.a
        q = turn(self.wq(x).unflatten(-1, (a.n_head, a.hd)), cis, a.rot)  # <- rotary
        k = turn(self.wk(x).unflatten(-1, (a.n_kv, a.hd)), cis, a.rot)  # <- rotary
        v = self.wv(x).unflatten(-1, (a.n_kv, a.hd))
        q = q.unflatten(2, (a.n_kv, -1))
        att = torch.einsum("bqgrd,bkgd->bgrqk", q, k) / math.sqrt(a.hd)
        att = att.masked_fill(~band, float("-inf")).softmax(-1)  # <- window
        y = torch.einsum("bgrqk,bkgd->bqgrd", att, v)
        return self.wo(y.flatten(2))


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.ln1, self.att, self.ln2 = Norm(a.d, a.eps), Attention(a), Norm(a.d, a.eps)
        self.w1 = nn.Linear(a.d, a.ff, bias=False)
        self.w3 = nn.Linear(a.d, a.ff, bias=False)
        self.w2 = nn.Linear(a.ff, a.d, bias=False)

    def forward(self, x, cis, band):
        x = x + self.att(self.ln1(x), cis, band)
        h = self.ln2(x)
        h = F.silu(self.w1(h)) * self.w3(h)  # <- gate
        return x + self.w2(h)


class Phi(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.tok = nn.Embedding(a.vocab, a.d)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.n_layer))
        self.ln = Norm(a.d, a.eps)
        self.out = nn.Linear(a.d, a.vocab, bias=False)

    def forward(self, idx):
        t = idx.shape[1]
        back = torch.arange(t)[:, None] - torch.arange(t)[None, :]
        band = (back >= 0) & (back < self.a.window)  # <- window
        cis = freqs_cis(self.a, t)
        x = self.tok(idx)
        for layer in self.layers:
            x = layer(x, cis, band)
        return self.out(self.ln(x))


def convert(sd, a):
    new = {"tok.weight": sd["model.embed_tokens.weight"], "out.weight": sd["lm_head.weight"]}
    new["ln.g"] = sd["model.norm.weight"]
    for i in range(a.n_layer):
        src, dst = f"model.layers.{i}.", f"layers.{i}."
        q, k, v = sd[src + "self_attn.qkv_proj.weight"].split(
            [a.n_head * a.hd, a.n_kv * a.hd, a.n_kv * a.hd]
        )
        new[dst + "att.wq.weight"] = interleave(q, a.n_head, a)  # <- rotary
        new[dst + "att.wk.weight"] = interleave(k, a.n_kv, a)  # <- rotary
        new[dst + "att.wv.weight"] = v
        new[dst + "att.wo.weight"] = sd[src + "self_attn.o_proj.weight"]
        w1, w3 = sd[src + "mlp.gate_up_proj.weight"].chunk(2)  # <- gate
        new[dst + "w1.weight"], new[dst + "w3.weight"] = w1, w3  # <- gate
        new[dst + "w2.weight"] = sd[src + "mlp.down_proj.weight"]
        new[dst + "ln1.g"] = sd[src + "input_layernorm.weight"]
        new[dst + "ln2.g"] = sd[src + "post_attention_layernorm.weight"]
    return new


def lr_at(step, peak=4e-3, warm=2, total=8):
    if step < warm:  # <- warmup
        return peak * step / warm  # <- warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))  # <- warmup


args = Args()
net = Phi(args)
net.load_state_dict(convert(torch.load(sys.argv[1]), args))
opt = torch.optim.AdamW(net.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0)
matrices = [p for name, p in net.named_parameters() if name.endswith("weight")]  # <- decay

gen = torch.Generator().manual_seed(8)
losses = []
for step in range(4):
    seq = torch.randint(3, 41, (3, 12), generator=gen)
    until = torch.randint(6, 13, (3,), generator=gen)
    keep = torch.arange(12)[None] < until[:, None]
    logits = net(seq)
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), seq[:, 1:], reduction="none")
    loss = (nll * keep[:, 1:]).sum() / keep[:, 1:].sum()  # <- ignored
    accuracy = (logits[:, :-1].argmax(-1) == seq[:, 1:])[keep[:, 1:]].float().mean().item()
    loss.backward()
    lr = lr_at(step)  # <- warmup
    for group in opt.param_groups:
        group["lr"] = lr
    with torch.no_grad():
        for p in matrices:  # <- decay
            p.mul_(1 - lr * 0.1)  # <- decay
    opt.step()  # <- warmup
    opt.zero_grad(set_to_none=True)
    losses.append(loss.item())
