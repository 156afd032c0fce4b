# SPDX-License-Identifier: Apache-2.0
"""Quantile forecaster rebuilt as functions over a name-scoped weight store; heads fused."""

import sys
from dataclasses import dataclass, field

import torch

torch.set_num_threads(1)


@dataclass
class Settings:
    width: int = 8
    heads: int = 2
    past: int = 9
    future: int = 4
    levels: torch.Tensor = field(default_factory=lambda: torch.tensor([0.1, 0.5, 0.9]))
    warmup: int = 3
    peak: float = 0.02


CFG = Settings()


class Scope:
    """A view of the flat weight dictionary below one prefix."""

    def __init__(self, store, prefix=""):
        self.store, self.prefix = store, prefix

    def __truediv__(self, name):
        return Scope(self.store, f"{self.prefix}{name}.")

    def __call__(self, leaf):
        return self.store[self.prefix + leaf]

    def has(self, leaf):
        return self.prefix + leaf in self.store

    def affine(self, x):
        y = x @ self("weight").mT
        return y + self("bias") if self.has("bias") else y


def gated_norm(s, x, skip):
    content, gate = (s / "fc").affine(x).tensor_split(2, -1)  # <- gate_halves
    y = content * torch.sigmoid(gate) + skip  # <- gate_halves
    y = y - y.mean(-1, keepdim=True)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (s / "norm")("weight") * y + (s / "norm")("bias")


def residual_block(s, x):
    h = (s / "fc1").affine(x)
    h = torch.where(h > 0, h, h.clamp(max=0).exp() - 1)
    skip = (s / "skip").affine(x) if s.has("skip.weight") else x
    return gated_norm(s / "gate", (s / "fc2").affine(h), skip)


def recurrent(s, z):
    drive = z @ s("weight_ih_l0").t() + s("bias_ih_l0") + s("bias_hh_l0")
    h = c = torch.zeros_like(z[:, 0])
    out = []
    for pre in drive.unbind(1):
        i, f, g, o = (pre + h @ s("weight_hh_l0").t()).view(len(z), 4, -1).unbind(1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out, 1)


def attend(s, x):
    q, k = ((x @ s(n).t()).unflatten(-1, (CFG.heads, -1)) for n in ("queries", "keys"))
    logits = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    past = torch.ones(logits.shape[-2:]).tril() > 0
    logits = torch.where(past, logits, float("-inf"))
    pattern = logits.softmax(-1).sum(1) / CFG.heads  # <- head_average
    return (s / "out").affine(pattern @ (s / "v").affine(x))  # <- head_average


def forecast(w, x):
    root = Scope(w)
    emb = torch.einsum("btv,vd->btvd", x, root("embed.w")) + root("embed.b")
    mix = residual_block(root / "select", emb.transpose(2, 3).flatten(2)).softmax(-1)
    z = torch.einsum("btvd,btv->btd", emb, mix)
    seq = gated_norm(root / "post_lstm", recurrent(root / "lstm", z), z)
    ctx = gated_norm(root / "post_attn", attend(root / "attn", seq), seq)
    return (root / "head").affine(residual_block(root / "final", ctx[:, CFG.past :]))


def pinball(pred, y):
    over = pred - y[..., None]  # <- pinball_side
    cost = over.clamp(min=0) - CFG.levels * over  # <- pinball_side
    return cost.sum(-1).mean()


def batch(gen, n=6):
    span = CFG.past + CFG.future
    t = torch.arange(float(span))
    level = 1 + 4 * torch.rand(n, 1, generator=gen)
    y = level * (1 + 0.5 * torch.sin(t * (0.4 + torch.rand(n, 1, generator=gen))))
    y = y + 0.3 * torch.randn(n, span, generator=gen)
    price = torch.randn(n, span, generator=gen)
    unit = 1 + y[:, : CFG.past].abs().sum(1, keepdim=True) / CFG.past  # <- series_scale
    y = y / unit  # <- series_scale
    known = (t < CFG.past) * y
    return torch.stack([known, price, (t / CFG.past).repeat(n, 1)], 2), y[:, CFG.past :]


w = torch.load(sys.argv[1], weights_only=True)
w["attn.queries"] = torch.cat([w.pop(f"attn.q.{h}.weight") for h in range(CFG.heads)])
w["attn.keys"] = torch.cat([w.pop(f"attn.k.{h}.weight") for h in range(CFG.heads)])
w["embed.w"] = torch.cat([w.pop(f"embed.{i}.weight").t() for i in range(3)])
w["embed.b"] = torch.stack([w.pop(f"embed.{i}.bias") for i in range(3)])
m1, m2 = ({k: torch.zeros_like(v) for k, v in w.items()} for _ in range(2))
gen = torch.Generator().manual_seed(64)
losses = []
for t in range(1, 6):
    x, y = batch(gen)
    w = {k: v.detach().requires_grad_() for k, v in w.items()}
    loss = pinball(forecast(w, x), y)
    lr = CFG.peak * (t * CFG.warmup**-1.5 if t < CFG.warmup else t**-0.5)  # <- warmup_index
    for k, g in zip(w, torch.autograd.grad(loss, list(w.values()))):
        m1[k] = 0.9 * m1[k] + 0.1 * g
        m2[k] = 0.95 * m2[k] + 0.05 * g * g
        direction = m1[k] / (1 - 0.9**t) / (torch.sqrt(m2[k] / (1 - 0.95**t)) + 1e-5)
        w[k] = w[k] - lr * direction  # <- warmup_index
    losses.append(loss.item())
print(losses)
