# SPDX-License-Identifier: Apache-2.0
"""GraphSAGE on a table of neighbours padded to the largest degree: own and neighbours' features
side by side through one matrix, tensors in a dictionary, the cosine written out.
"""

import math
import sys

import torch
import torch.nn.functional as F


def fused(theirs, n):
    """[neighbours; self] by one kernel."""
    both = (theirs[f"convs.{n}.lin_l.weight"], theirs[f"convs.{n}.lin_r.weight"])  # <- crossed
    return torch.cat(both, 1).t().contiguous()  # <- crossed


def load(path):
    theirs = torch.load(path)
    p = {}
    for n in (0, 1):
        p[f"kernel{n}"] = fused(theirs, n)
        p[f"bias{n}"] = theirs[f"convs.{n}.lin_l.bias"].clone()
        p[f"gamma{n}"] = theirs[f"norms.{n}.weight"].clone()
        p[f"beta{n}"] = theirs[f"norms.{n}.bias"].clone()
        p[f"head{n}"] = theirs["lin.weight"][:, n * 10 : n * 10 + 10].t().contiguous()
    p["head_bias"] = theirs["lin.bias"].clone()
    return {name: value.requires_grad_() for name, value in p.items()}


def read_graph():
    rng = torch.Generator().manual_seed(82)
    features = torch.randint(0, 3, (24, 12), generator=rng).float()
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    labels = torch.randint(4, (24,), generator=rng)
    citing = torch.randint(1, 24, (50,), generator=rng)
    cited = (torch.rand(50, generator=rng) * citing).long()
    train = (torch.rand(24, generator=rng) < 0.6).nonzero()[:, 0]
    adjacency = [[] for _ in range(24)]
    for a, b in zip(citing.tolist(), cited.tolist(), strict=True):
        adjacency[b].append(a)  # <- direction
    width = max(map(len, adjacency))
    table = torch.tensor([row + [24] * (width - len(row)) for row in adjacency])  # <- direction
    return features, labels, table, train


def neighbourhood(h, table, kind):
    padded = torch.cat((h, h.new_zeros(1, h.shape[1])))
    around = padded[table]  # <- direction
    real = (table < len(h))[..., None]
    if kind == "mean":
        count = real.sum(1).clamp(min=1)  # <- lonely
        return around.sum(1) / count  # <- direction lonely
    return around.amax(1)  # <- direction


def forward(p, h, table):
    logits = p["head_bias"]
    for n, kind in enumerate(("mean", "max")):
        both = torch.cat((neighbourhood(h, table, kind), h), 1)  # <- direction lonely
        h = both @ p[f"kernel{n}"] + p[f"bias{n}"]  # <- crossed
        h = h * torch.rsqrt(h.square().sum(1, keepdim=True))
        h = F.batch_norm(h, None, None, p[f"gamma{n}"], p[f"beta{n}"], training=True).relu()
        logits = logits + h @ p[f"head{n}"]
    return logits


features, labels, table, train = read_graph()
params = load(sys.argv[1])
first = {name: torch.zeros_like(v) for name, v in params.items()}
second = {name: torch.zeros_like(v) for name, v in params.items()}
losses = []
for step in range(4):
    log_p = forward(params, features, table).log_softmax(1)
    picked = log_p[train, labels[train]]  # <- leaked
    loss = -picked.mean()  # <- leaked
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))
    rate = 0.01 * (1 + math.cos(math.pi * step / 4))  # <- annealed
    t = step + 1
    with torch.no_grad():
        for name, value in params.items():
            value.mul_(1 - rate * 0.1)
            first[name].lerp_(grads[name], 0.1)
            second[name].lerp_(grads[name].square(), 0.001)
            root = (second[name] / (1 - 0.999**t)).sqrt()
            value.sub_(rate * first[name] / (1 - 0.9**t) / (root + 1e-3))  # <- annealed
    losses.append(loss.item())
