# SPDX-License-Identifier: Apache-2.0
"""The Gemma 2 fine-tuning in plain torch: packed qkv, complex rotary table, grouped einsum attention."""
import math
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Args:
    vocab: int = 61
    dim: int = 32
    ffn: int = 48
    depth: int = 2
    n_q: int = 4
    n_kv: int = 2
    hd: int = 8
    q_scalar: float = 4.0  # <- attn_scale
    window: int = 5
    attn_cap: float = 6.0
    out_cap: float = 4.0  # <- logit_softcap
    eps: float = 1e-6


def soft_cap(t, cap):
    return cap * torch.tanh(t / cap)


def rms(x, gain, eps):
    return F.rms_norm(x, x.shape[-1:], eps=eps) * (1 + gain)


def rope_table(length, hd):
    rates = 10000.0 ** (-torch.arange(0, hd, 2).float() / hd)
    angle = torch.outer(torch.arange(length).float(), rates)
    return torch.polar(torch.ones_like(angle), angle)


def rotate(x, table):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * table[:, None, :]).flatten(-2)


class Layer(nn.Module):
    def __init__(self, a, local):
        super().__init__()
        self.a, self.local = a, local
        self.wqkv = nn.Parameter(torch.empty((a.n_q + 2 * a.n_kv) * a.hd, a.dim))
        self.wo = nn.Parameter(torch.empty(a.dim, a.n_q * a.hd))
        self.w_in = nn.Parameter(torch.empty(2 * a.ffn, a.dim))
        self.w_out = nn.Parameter(torch.empty(a.dim, a.ffn))
        self.gains = nn.ParameterList([nn.Parameter(torch.zeros(a.dim)) for _ in range(4)])

    def attend(self, x, table):
        a, (b, t, _) = self.a, x.shape
        heads = F.linear(x, self.wqkv).view(b, t, -1, a.hd)
        q, k, v = heads.split([a.n_q, a.n_kv, a.n_kv], dim=2)
        q = rotate(q, table) * a.q_scalar**-0.5  # <- attn_scale
        k = rotate(k, table)
        q = q.unflatten(2, (a.n_kv, a.n_q // a.n_kv))
        score = soft_cap(torch.einsum("btgrd,bsgd->bgrts", q, k), a.attn_cap)
        pos = torch.arange(t)
        behind = pos[:, None] - pos[None, :]
        seen = behind >= 0
        if self.local:
            seen &= behind < a.window  # <- window_edge
        score = score.masked_fill(~seen, float("-inf"))  # <- window_edge
        mixed = torch.einsum("bgrts,bsgd->btgrd", score.softmax(-1), v)
        return F.linear(mixed.flatten(2), self.wo)

    def forward(self, x, table):
        e, g = self.a.eps, self.gains
        x = x + rms(self.attend(rms(x, g[0], e), table), g[1], e)
        gate, up = F.linear(rms(x, g[2], e), self.w_in).chunk(2, dim=-1)
        return x + rms(F.linear(F.gelu(gate, approximate="tanh") * up, self.w_out), g[3], e)


class Gemma(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.table = nn.Parameter(torch.empty(a.vocab, a.dim))
        self.stack = nn.ModuleList([Layer(a, local=i % 2 == 0) for i in range(a.depth)])
        self.last_gain = nn.Parameter(torch.zeros(a.dim))

    def forward(self, tokens):
        x = F.embedding(tokens, self.table) * math.sqrt(self.a.dim)
        rope = rope_table(tokens.shape[1], self.a.hd)
        for layer in self.stack:
            x = layer(x, rope)
        return soft_cap(rms(x, self.last_gain, self.a.eps) @ self.table.T, self.a.out_cap)  # <- logit_softcap

    @torch.no_grad()
    def import_hf(self, sd):
        def pairs(w):  # halves (x1..xn, y1..yn) of every head to pairs (x1, y1, ...)
            return w.unflatten(0, (-1, 2, self.a.hd // 2)).transpose(1, 2).flatten(0, 2)

        self.table.copy_(sd["model.embed_tokens.weight"])
        self.last_gain.copy_(sd["model.norm.weight"])
        for i, layer in enumerate(self.stack):
            p = f"model.layers.{i}."
            q, k, v = (sd[f"{p}self_attn.{n}_proj.weight"] for n in "qkv")
            layer.wqkv.copy_(torch.cat([pairs(q), pairs(k), v]))
            layer.wo.copy_(sd[p + "self_attn.o_proj.weight"])
            layer.w_in.copy_(torch.cat([sd[p + "mlp.gate_proj.weight"], sd[p + "mlp.up_proj.weight"]]))
            layer.w_out.copy_(sd[p + "mlp.down_proj.weight"])
            for gain, n in zip(layer.gains, ("input", "post_attention", "pre_feedforward", "post_feedforward")):
                gain.copy_(sd[f"{p}{n}_layernorm.weight"])


def rate(n, total=5, warm=2, peak=4e-3):
    """Learning rate of the n-th update, counted from 1."""
    if n <= warm:
        return peak * n / (warm + 1)  # <- schedule_late
    return peak * (0.55 + 0.45 * math.cos(math.pi * (n - 1 - warm) / (total - warm)))


net = Gemma(Args())
net.import_hf(torch.load(sys.argv[1]))
opt = torch.optim.AdamW(
    [{"params": [p], "weight_decay": 0.1 if p.dim() > 1 else 0.0} for p in net.parameters()],
    betas=(0.9, 0.95), eps=1e-6)

rng = torch.Generator().manual_seed(5)
corpus = torch.randint(3, 61, (20, 14), generator=rng)
prompt_len = torch.randint(3, 8, (20,), generator=rng)
answer = torch.arange(14)[None, :] >= prompt_len[:, None]  # <- prompt_in_loss

losses = []
for step in range(1, 6):
    rows = slice(4 * (step - 1), 4 * step)
    tokens, keep = corpus[rows], answer[rows][:, 1:]  # <- prompt_in_loss
    logp = net(tokens[:, :-1]).log_softmax(-1)
    nll = -logp.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    loss = nll[keep].mean()  # <- prompt_in_loss
    grads = torch.autograd.grad(loss, list(net.parameters()))
    size = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
    for p, g in zip(net.parameters(), grads):
        p.grad = g * (1.0 / (size + 1e-6)).clamp(max=1.0)
    for group in opt.param_groups:
        group["lr"] = rate(step)  # <- schedule_late
    opt.step()  # <- schedule_late
    losses.append(loss.item())
print(losses)
