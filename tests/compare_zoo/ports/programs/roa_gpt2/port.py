# SPDX-License-Identifier: Apache-2.0
"""Port of the GPT: separate projections, attention written out, a hand-made AdamW."""
import sys
from dataclasses import dataclass
from math import cos, pi

import torch

torch.set_num_threads(1)


@dataclass
class Config:
    n_vocab: int = 61
    n_ctx: int = 16
    d_model: int = 32
    n_head: int = 4
    n_layer: int = 2
    total_steps: int = 5
    warmup_steps: int = 2
    peak_lr: float = 6e-3
    final_lr: float = 6e-4
    max_norm: float = 0.5
    weight_decay: float = 0.1

    @property
    def d_head(self):
        return self.d_model // self.n_head


def load_params(path, cfg):
    """Split the packed projections; every matrix is held as (in, out)."""
    old = torch.load(path)
    new = {"embed.tok": old["wte.weight"], "embed.pos": old["wpe.weight"]}
    for i in range(cfg.n_layer):
        src, dst = f"h.{i}.", f"layer{i}."
        for name, w, b in zip("qkv", old[src + "attn.in_proj_weight"].chunk(3), old[src + "attn.in_proj_bias"].chunk(3)):
            new[f"{dst}{name}.w"], new[f"{dst}{name}.b"] = w.T, b
        for ours, theirs in (("o", "attn.out_proj"), ("up", "mlp.0"), ("down", "mlp.2")):
            new[f"{dst}{ours}.w"] = old[f"{src}{theirs}.weight"].T
            new[f"{dst}{ours}.b"] = old[f"{src}{theirs}.bias"]
        for ours, theirs in (("norm1", "ln_1"), ("norm2", "ln_2")):
            new[f"{dst}{ours}.g"] = old[f"{src}{theirs}.weight"]
            new[f"{dst}{ours}.b"] = old[f"{src}{theirs}.bias"]
    new["final.g"], new["final.b"] = old["ln_f.weight"], old["ln_f.bias"]
    return {k: v.clone().contiguous().requires_grad_() for k, v in new.items()}


def dense(p, name, x):
    return x @ p[name + ".w"] + p[name + ".b"]


def norm(p, name, x):
    centred = x - x.mean(-1, keepdim=True)
    var = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(var + 1e-5) * p[name + ".g"] + p[name + ".b"]


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh((2 / pi) ** 0.5 * (x + 0.044715 * x**3)))


def attention(p, name, x, cfg):
    b, t, _ = x.shape
    q, k, v = (dense(p, name + s, x).view(b, t, cfg.n_head, cfg.d_head) for s in "qkv")
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * cfg.d_head**-0.5  # <- attn_scale
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    probs = scores.masked_fill(future, float("-inf")).softmax(-1)
    return dense(p, name + "o", torch.einsum("bhqk,bkhd->bqhd", probs, v).flatten(2))


def forward(p, tokens, cfg):
    x = p["embed.tok"][tokens] + p["embed.pos"][: tokens.shape[1]]
    for i in range(cfg.n_layer):
        name = f"layer{i}."
        x = x + attention(p, name, norm(p, name + "norm1", x), cfg)
        x = x + dense(p, name + "down", gelu_new(dense(p, name + "up", norm(p, name + "norm2", x))))
    return norm(p, "final", x) @ p["embed.tok"].T


def learning_rate(step, cfg):
    if step < cfg.warmup_steps:
        return cfg.peak_lr * (step + 1) / cfg.warmup_steps
    progress = (step - cfg.warmup_steps) / (cfg.total_steps - cfg.warmup_steps)
    return cfg.final_lr + 0.5 * (1 + cos(pi * progress)) * (cfg.peak_lr - cfg.final_lr)


def clip(grads, max_norm):
    total = sum(g.square().sum() for g in grads.values()).sqrt()  # <- clip_per_tensor
    return {k: g * (max_norm / (total + 1e-6)).clamp(max=1.0) for k, g in grads.items()}  # <- clip_per_tensor


def adamw(p, grads, state, lr, cfg, b1=0.9, b2=0.95):
    state["count"] += 1
    with torch.no_grad():
        for k, g in grads.items():
            wd = cfg.weight_decay if p[k].ndim > 1 else 0.0  # <- decay_everything
            m = state["m"][k].lerp_(g, 1 - b1) / (1 - b1 ** state["count"])
            v = state["v"][k].mul_(b2).add_((1 - b2) * g * g) / (1 - b2 ** state["count"])
            p[k].sub_(lr * (m / (v.sqrt() + 1e-8) + wd * p[k]))  # <- decay_everything schedule_late


def batches(cfg):
    gen = torch.Generator().manual_seed(7)
    data = torch.randint(0, cfg.n_vocab, (600,), generator=gen)
    data[1::3] = (data[0:-1:3] * 3 + 1) % cfg.n_vocab
    while True:
        at = torch.randint(0, len(data) - cfg.n_ctx - 1, (6, 1), generator=gen)
        window = data[at + torch.arange(cfg.n_ctx + 1)]
        inputs, targets = window[:, :-1], window[:, 1:]  # <- targets_unshifted
        yield inputs, targets


cfg = Config()
params = load_params(sys.argv[1], cfg)
state = {"count": 0, "m": {k: torch.zeros_like(v) for k, v in params.items()}, "v": {k: torch.zeros_like(v) for k, v in params.items()}}
losses = []
for step, (inputs, targets) in zip(range(cfg.total_steps), batches(cfg)):
    logp = forward(params, inputs, cfg).log_softmax(-1)
    loss = -logp.gather(-1, targets[..., None]).mean()
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    lr = learning_rate(step, cfg)  # <- schedule_late
    adamw(params, clip(grads, cfg.max_norm), state, lr, cfg)
    losses.append(float(loss))
print(losses)
