# SPDX-License-Identifier: Apache-2.0
"""Sentence classifier with post-norm encoder blocks written out by hand."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

VOCAB, WIDTH, N_HEAD, INNER, DEPTH, CLASSES = 60, 32, 4, 64, 2, 3
BOS, PAD, EOS = 0, 1, 2
EMB_EPS = 1e-5


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k = nn.Linear(WIDTH, WIDTH)
        self.v = nn.Linear(WIDTH, WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)

    def forward(self, h, additive):
        b, t, _ = h.shape
        split = lambda y: y.reshape(b, t, N_HEAD, -1).transpose(1, 2)
        q, k, v = split(self.q(h)), split(self.k(h)), split(self.v(h))
        att = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(WIDTH // N_HEAD)
        att = (att + additive).softmax(-1)  # <- pad_mask
        ctx = torch.einsum("bhij,bhjd->bihd", att, v).flatten(2)
        return self.o(ctx)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.ln_a = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, INNER)
        self.down = nn.Linear(INNER, WIDTH)
        self.ln_b = nn.LayerNorm(WIDTH)

    def forward(self, h, additive):
        h = self.ln_a(h + self.attention(h, additive))
        return self.ln_b(h + self.down(F.gelu(self.up(h))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.pos = nn.Embedding(20, WIDTH, padding_idx=PAD)
        self.ln_e = nn.LayerNorm(WIDTH, eps=EMB_EPS)  # <- emb_ln_eps
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.pool = nn.Linear(WIDTH, WIDTH)
        self.cls = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids, mask):
        additive = torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))[:, None, None, :]  # <- pad_mask
        positions = torch.where(mask > 0, mask.cumsum(1) + PAD, PAD)  # <- position_ids
        h = self.ln_e(self.tok(ids) + self.pos(positions))  # <- emb_ln_eps position_ids
        for blk in self.blocks:
            h = blk(h, additive)
        return self.cls(self.pool(h.select(1, 0)).tanh())


def import_weights(net, path):
    src = torch.load(path)
    dst = {
        "tok.weight": src["word_embeddings.weight"], "pos.weight": src["position_embeddings.weight"],
    }
    for ours, theirs in (("ln_e", "norm"), ("pool", "dense"), ("cls", "out_proj")):
        for kind in ("weight", "bias"):
            dst[f"{ours}.{kind}"] = src[f"{theirs}.{kind}"]
    for i in range(DEPTH):
        a, b = f"encoder.layers.{i}.", f"blocks.{i}."
        for kind in ("weight", "bias"):
            parts = src[f"{a}self_attn.in_proj_{kind}"].chunk(3, dim=0)
            for letter, part in zip("qkv", parts):
                dst[f"{b}attention.{letter}.{kind}"] = part.clone()
            dst[f"{b}attention.o.{kind}"] = src[f"{a}self_attn.out_proj.{kind}"]
            for ours, theirs in (("ln_a", "norm1"), ("up", "linear1"), ("down", "linear2"), ("ln_b", "norm2")):
                dst[f"{b}{ours}.{kind}"] = src[f"{a}{theirs}.{kind}"]
    net.load_state_dict(dst)


def batches():
    gen = torch.Generator().manual_seed(5)
    draw = lambda lo, hi, n: torch.randint(lo, hi, (n,), generator=gen).tolist()
    rows = []
    for _ in range(20):
        n = draw(4, 15, 1)[0]
        rows.append(([BOS] + draw(3, VOCAB, n) + [EOS], draw(0, CLASSES, 1)[0]))
    for k in range(0, 20, 4):
        part = rows[k:k + 4]
        longest = max(len(r) for r, _ in part)
        ids = torch.tensor([r + [PAD] * (longest - len(r)) for r, _ in part])
        mask = torch.tensor([[1] * len(r) + [0] * (longest - len(r)) for r, _ in part])
        yield ids, mask, torch.tensor([y for _, y in part])


def weighted_nll(logits, y, w):
    picked = logits.log_softmax(-1).gather(1, y[:, None]).squeeze(1)
    wy = w[y]
    return -(wy * picked).sum() / wy.sum()  # <- weighted_mean


net = Classifier()
import_weights(net, sys.argv[1])
matrices = [p for p in net.parameters() if p.ndim > 1]  # <- decay_groups
vectors = [p for p in net.parameters() if p.ndim <= 1]
opt = torch.optim.AdamW([  # <- decay_groups
    dict(params=matrices, weight_decay=0.2),
    dict(params=vectors, weight_decay=0.0),
], lr=4e-3, eps=1e-6)
rates = [0.002, 0.004, 0.004, 4e-3 * 5 / 6, 4e-3 * 4 / 6]

losses = []
for lr, (ids, mask, y) in zip(rates, batches()):
    for group in opt.param_groups:
        group["lr"] = lr
    net.zero_grad(set_to_none=True)
    loss = weighted_nll(net(ids, mask), y, torch.tensor([1.0, 2.5, 0.6]))  # <- weighted_mean
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    for p in net.parameters():
        p.grad.mul_(torch.clamp(1.0 / (norm + 1e-6), max=1.0))
    opt.step()  # <- decay_groups
    losses.append(loss.item())
print(losses)
