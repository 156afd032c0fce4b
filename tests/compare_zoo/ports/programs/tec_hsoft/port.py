# SPDX-License-Identifier: Apache-2.0
"""Tree-softmax language model: dense path matrices, functional encoder, fast/slow weights."""

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass(frozen=True)
class TreeLM:
    vocab: int = 37
    dim: int = 10
    ctx: int = 4
    micro: int = 2
    updates: int = 5
    lr: float = 0.3
    momentum: float = 0.6
    sync: int = 2
    pull: float = 0.5
    clip: float = 0.05


CFG = TreeLM()


def huffman_matrix(counts):
    """(vocab, inner) matrix: -1 where a word goes left, +1 where right, 0 off its path."""
    n = len(counts)
    signs = torch.zeros(n, n - 1)
    pool = [(c, i, [i]) for i, c in enumerate(counts)]
    for inner in range(n - 1):
        pool.sort(key=lambda e: e[:2])
        (ca, _, left), (cb, _, right) = pool[:2]
        signs[left, inner] = -1.0
        signs[right, inner] = 1.0
        pool = pool[2:] + [(ca + cb, n + inner, left + right)]
    return signs


def encode(p, ctx):
    bag = torch.einsum("ncd,cd->nd", p["emb"][ctx], p["pos"]) / CFG.ctx
    bag = F.layer_norm(bag, (CFG.dim,), p["gain"], p["shift"], 1e-3)
    carry = torch.sigmoid(1.0 - (bag @ p["gate_w"].t() + p["gate_b"]))  # <- carry_bias
    fresh = (bag @ p["cand_w"].t() + p["cand_b"]).clamp(min=0)
    return torch.lerp(fresh, bag, carry)  # <- carry_bias


def token_nll(p, signs, ctx, word):
    margins = encode(p, ctx) @ p["tree_w"].t() + p["tree_b"]
    turns = signs[word]
    return (F.softplus(-turns * margins) * turns.abs()).sum(1)  # <- branch_sign


def from_checkpoint(path):
    sd = torch.load(path, weights_only=True)
    (gw, cw), (gb, cb) = sd["highway.weight"].chunk(2), sd["highway.bias"].chunk(2)
    return dict(
        emb=sd["embed.weight"],
        pos=sd["position"],
        gain=sd["norm.weight"],
        shift=sd["norm.bias"],
        gate_w=gw,
        gate_b=gb,
        cand_w=cw,
        cand_b=cb,
        tree_w=sd["nodes.weight"],
        tree_b=sd["nodes.bias"],
    )


def micro_batches(rng):
    for _ in range(CFG.micro):
        n = int(torch.randint(5, 16, (1,), generator=rng))
        ids = torch.randint(0, CFG.vocab, (n, CFG.ctx + 1), generator=rng)
        yield ids.split([CFG.ctx, 1], 1)


rng = torch.Generator().manual_seed(77)
signs = huffman_matrix(torch.randint(1, 50, (CFG.vocab,), generator=rng).tolist())
fast = {k: v.clone() for k, v in from_checkpoint(sys.argv[1]).items()}
slow = dict(fast)
speed = {k: torch.zeros_like(v) for k, v in fast.items()}
losses = []
for update in range(1, CFG.updates + 1):
    fast = {k: v.detach().requires_grad_() for k, v in fast.items()}
    costs = [token_nll(fast, signs, c, w[:, 0]) for c, w in micro_batches(rng)]
    loss = torch.cat(costs).mean()  # <- token_normaliser
    grads = torch.autograd.grad(loss, list(fast.values()))
    with torch.no_grad():
        for k, g in zip(fast, grads):
            limited = g.clamp(-CFG.clip, CFG.clip)  # <- elementwise_clip
            speed[k] = CFG.momentum * speed[k] + limited  # <- elementwise_clip
            fast[k] = fast[k] - CFG.lr * speed[k]
        if update % CFG.sync == 0:
            slow = {k: torch.lerp(slow[k], fast[k], CFG.pull) for k in fast}  # <- slow_pull
            fast = dict(slow)  # <- slow_pull
    losses.append(loss.item())
print(losses)
