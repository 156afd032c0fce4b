# SPDX-License-Identifier: Apache-2.0
"""MMoE with stacked weights: every expert in one einsum, per-field tables, logit-space losses."""

import sys

import torch
from torch.nn import functional as F

old = torch.load(sys.argv[1], weights_only=True)


def gather(pattern, count):
    return torch.stack([old[pattern.format(i)] for i in range(count)])


theta = {
    "num.w": old["numerical_layer.weight"].T,
    "num.b": old["numerical_layer.bias"],
    "gate.w": gather("gate.{}.0.weight", 2),
    "gate.b": gather("gate.{}.0.bias", 2),
    "head.w": gather("tower.{}.mlp.3.weight", 2)[:, 0],
    "head.b": gather("tower.{}.mlp.3.bias", 2),
}
for field, rows in enumerate(old["embedding.embedding.weight"].split([7, 11, 5])):  # <- offsets
    theta[f"table{field}"] = rows  # <- offsets
for short, long, n in (("exp", "expert", 3), ("tow", "tower", 2)):
    theta[short + ".w"] = gather(long + ".{}.mlp.0.weight", n)
    theta[short + ".b"] = gather(long + ".{}.mlp.0.bias", n)
    theta[short + ".g"] = gather(long + ".{}.mlp.1.weight", n)
    theta[short + ".s"] = gather(long + ".{}.mlp.1.bias", n)
    theta[short + ".a"] = gather(long + ".{}.mlp.2.weight", n)
theta = {k: v.clone().contiguous().requires_grad_() for k, v in theta.items()}


def block(kind, x):
    """x: (n, batch, in) or (1, batch, in) against n stacked layers"""
    y = torch.einsum("nbi,noi->nbo", x.expand(len(theta[kind + ".w"]), -1, -1), theta[kind + ".w"])
    y = y + theta[kind + ".b"][:, None]
    y = F.layer_norm(y, y.shape[-1:])
    y = y * theta[kind + ".g"][:, None] + theta[kind + ".s"][:, None]
    return y.relu() - theta[kind + ".a"][:, None] * (-y).relu()  # <- slope


def forward(fields, numbers):
    columns = [theta[f"table{i}"][fields[:, i]] for i in range(3)]  # <- offsets
    x = torch.cat([*columns, numbers @ theta["num.w"] + theta["num.b"]], dim=1)
    mixed = torch.einsum("bi,tei->tbe", x, theta["gate.w"]) + theta["gate.b"][:, None]
    mixed = mixed.softmax(dim=2)  # <- gate
    experts = block("exp", x[None])
    mixed = torch.einsum("tbe,ebo->tbo", mixed, experts)
    tower = block("tow", mixed)
    return torch.einsum("tbo,to->tb", tower, theta["head.w"]) + theta["head.b"]


def objective(z, click, buy):
    seen = F.binary_cross_entropy_with_logits(z[0], click)
    log_both = F.logsigmoid(z[0]) + F.logsigmoid(z[1])  # <- funnel
    done = -(buy * log_both + (1 - buy) * torch.log1p(-log_both.exp())).mean()  # <- funnel
    return 0.5 * (seen + done)


history = {k: torch.full_like(v, 0.1) for k, v in theta.items()}  # <- accumulator


def adagrad(lr=0.03):
    for k, p in theta.items():
        history[k] += p.grad**2  # <- accumulator
        p.data -= lr * p.grad / history[k].sqrt()  # <- accumulator
        p.grad = None


stream = torch.Generator().manual_seed(99)
losses = []
for _ in range(5):
    fields = torch.stack([torch.randint(0, n, (16,), generator=stream) for n in (7, 11, 5)], 1)
    numbers = torch.rand(16, 5, generator=stream)
    click = (torch.rand(16, generator=stream) < 0.5).float()
    buy = click * (torch.rand(16, generator=stream) < 0.5).float()
    loss = objective(forward(fields, numbers), click, buy)
    loss.backward()
    adagrad()  # <- accumulator
    losses.append(loss.item())
print(losses)
