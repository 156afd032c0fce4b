# SPDX-License-Identifier: Apache-2.0
"""The same fine-tuning in the layout of Meta's reference code: fused wqkv, complex rotary, a hand-written AdamW."""
import math
import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


@dataclass
class Args:
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv: int = 2
    hidden: int = 56
    vocab: int = 61
    window: int = 5
    theta: float = 100.0
    eps: float = 1e-5

    @property
    def head(self):
        return self.dim // self.n_heads


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.scale, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.scale


def rotate(x, freqs):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))  # <- rope_rows
    return torch.view_as_real(pairs * freqs[:, None]).flatten(-2)  # <- rope_rows


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.wqkv = nn.Linear(a.dim, (a.n_heads + 2 * a.n_kv) * a.head, bias=False)
        self.wo = nn.Linear(a.dim, a.dim, bias=False)
        self.w13 = nn.Linear(a.dim, 2 * a.hidden, bias=False)
        self.w2 = nn.Linear(a.hidden, a.dim, bias=False)
        self.norm_a, self.norm_f = Norm(a.dim, a.eps), Norm(a.dim, a.eps)

    def forward(self, x, freqs, allowed):
        a = self.a
        B, T, _ = x.shape
        q, k, v = self.wqkv(self.norm_a(x)).view(B, T, -1, a.head).split([a.n_heads, a.n_kv, a.n_kv], dim=2)
        q = rotate(q, freqs).view(B, T, a.n_kv, a.n_heads // a.n_kv, a.head)
        k = rotate(k, freqs)
        scores = torch.einsum("btgrd,bsgd->bgrts", q, k) / math.sqrt(a.head)
        probs = torch.where(allowed, scores, -torch.inf).softmax(-1)
        x = x + self.wo(torch.einsum("bgrts,bsgd->btgrd", probs, v).reshape(B, T, -1))
        gate, up = self.w13(self.norm_f(x)).chunk(2, dim=-1)
        return x + self.w2(gate * torch.sigmoid(gate) * up)


class Transformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.tok = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.n_layers))
        self.norm, self.output = Norm(a.dim, a.eps), nn.Linear(a.dim, a.vocab, bias=False)

    def forward(self, ids):
        pos = torch.arange(ids.shape[1])
        inv = self.a.theta ** (-torch.arange(0, self.a.head, 2) / self.a.head)
        freqs = torch.polar(torch.ones(()), torch.outer(pos.float(), inv))
        back = pos[:, None] - pos[None, :]
        allowed = (back >= 0) & (back < self.a.window)  # <- window_edge
        h = self.tok(ids)
        for block in self.blocks:
            h = block(h, freqs, allowed)
        return self.output(self.norm(h))


def interleave(w, a):
    """Rows of a Hugging Face q/k projection (halves) in the order of complex pairs."""
    return w.view(-1, 2, a.head // 2, a.dim).transpose(1, 2).reshape(w.shape)  # <- rope_rows


def load(path, a):
    hf, out = torch.load(path), {}
    out["tok.weight"], out["norm.scale"] = hf["model.embed_tokens.weight"], hf["model.norm.weight"]
    out["output.weight"] = hf["lm_head.weight"]
    for i in range(a.n_layers):
        src, dst = f"model.layers.{i}.", f"blocks.{i}."
        q, k, v = (hf[f"{src}self_attn.{n}_proj.weight"] for n in "qkv")
        out[dst + "wqkv.weight"] = torch.cat([interleave(q, a), interleave(k, a), v])  # <- rope_rows
        out[dst + "wo.weight"] = hf[src + "self_attn.o_proj.weight"]
        out[dst + "w13.weight"] = torch.cat([hf[src + "mlp.gate_proj.weight"], hf[src + "mlp.up_proj.weight"]])
        out[dst + "w2.weight"] = hf[src + "mlp.down_proj.weight"]
        out[dst + "norm_a.scale"] = hf[src + "input_layernorm.weight"]
        out[dst + "norm_f.scale"] = hf[src + "post_attention_layernorm.weight"]
    model = Transformer(a)
    model.load_state_dict(out)
    return model


def lr_at(step, peak=1e-2, warmup=2, total=8):
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


@torch.no_grad()
def adamw(params, state, t, lr, b1=0.9, b2=0.95, eps=1e-8, wd=0.5):
    norm = torch.sqrt(sum(p.grad.square().sum() for p in params))
    shrink = min(1.0, 1.0 / (norm.item() + 1e-6))
    for p in params:
        m, v = state.setdefault(p, (torch.zeros_like(p), torch.zeros_like(p)))
        g = p.grad * shrink
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        if p.ndim > 1:  # <- decay_norms
            p.mul_(1 - lr * wd)  # <- decay_norms
        p.addcdiv_(m / (1 - b1 ** t), (v / (1 - b2 ** t)).sqrt_().add_(eps), value=-lr)
        p.grad = None


def main(path):
    args, steps, batch, length = Args(), 5, 4, 16
    model = load(path, args)
    g = torch.Generator().manual_seed(5)
    tokens = torch.randint(1, args.vocab, (steps * batch, length), generator=g)
    first = torch.randint(2, 6, (steps * batch,), generator=g)
    total = torch.randint(8, length + 1, (steps * batch,), generator=g)
    at = torch.arange(length)
    target = (at >= first[:, None]) & (at < total[:, None])
    params, state, history = list(model.parameters()), {}, []
    for step in range(steps):
        rows = slice(step * batch, (step + 1) * batch)
        logp = F.log_softmax(model(tokens[rows, :-1]), dim=-1)
        nll = -logp.gather(-1, tokens[rows, 1:, None]).squeeze(-1)
        w = target[rows, 1:].float()
        loss = (nll * w).sum() / w.sum()  # <- mean_per_row
        loss.backward()
        adamw(params, state, step + 1, lr_at(step))  # <- warmup_late
        history.append(loss.item())
    return history


losses = main(sys.argv[1])
print(losses)
