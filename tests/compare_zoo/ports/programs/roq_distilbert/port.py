# SPDX-License-Identifier: Apache-2.0
"""Masked language model on nn.TransformerEncoderLayer blocks, with a functional AdamW of its own."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

V, D, H, FF, L = 70, 40, 4, 80, 2
EPS = 1e-12


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Parameter(torch.empty(V, D))
        self.pos = nn.Parameter(torch.empty(24, D))
        self.norm_in = nn.LayerNorm(D, eps=EPS)  # <- ln_eps
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(D, H, FF, dropout=0.0, activation="gelu", layer_norm_eps=EPS, batch_first=True)
            for _ in range(L))
        self.head = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D, eps=EPS))
        self.out_bias = nn.Parameter(torch.zeros(V))

    def forward(self, ids, is_pad, where):
        h = self.norm_in(F.embedding(ids, self.tok) + self.pos[: ids.size(1)])  # <- ln_eps
        for block in self.blocks:
            h = block(h, src_key_padding_mask=is_pad)  # <- pad_mask
        picked = self.head(h[where])
        return F.linear(picked, self.tok, self.out_bias)  # <- tie_broken


def rename(sd):
    out = {
        "tok": sd["distilbert.embeddings.word_embeddings.weight"],
        "pos": sd["distilbert.embeddings.position_embeddings.weight"],
        "out_bias": sd["vocab_projector.bias"],
    }

    def move(src, dst):
        for kind in ("weight", "bias"):
            out[f"{dst}.{kind}"] = sd[f"{src}.{kind}"]

    move("distilbert.embeddings.LayerNorm", "norm_in")
    move("vocab_transform", "head.0")
    move("vocab_layer_norm", "head.2")
    for i in range(L):
        src, dst = f"distilbert.transformer.layer.{i}", f"blocks.{i}"
        for kind in ("weight", "bias"):
            out[f"{dst}.self_attn.in_proj_{kind}"] = torch.cat(
                [sd[f"{src}.attention.{n}_lin.{kind}"] for n in ("q", "k", "v")])
        move(f"{src}.attention.out_lin", f"{dst}.self_attn.out_proj")
        move(f"{src}.sa_layer_norm", f"{dst}.norm1")
        move(f"{src}.ffn.lin1", f"{dst}.linear1")
        move(f"{src}.ffn.lin2", f"{dst}.linear2")
        move(f"{src}.output_layer_norm", f"{dst}.norm2")
    return out


@torch.no_grad()
def adamw_(params, grads, memory, t, lr, wd, eps=1e-6, b1=0.9, b2=0.999):
    for name, p in params.items():
        m, v = memory.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
        g = grads[name]
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        if p.ndim > 1:  # <- decay_biases
            p.mul_(1 - lr * wd)  # <- decay_biases
        step = lr / (1 - b1**t)
        p.sub_(step * m / ((v / (1 - b2**t)).sqrt() + eps))


def batches(count, size):
    words, holes = torch.Generator().manual_seed(21), torch.Generator().manual_seed(22)
    for _ in range(count):
        rows = []
        for _ in range(size):
            n = torch.randint(5, 15, (1,), generator=words).item()
            body = torch.randint(4, V, (n,), generator=words)
            rows.append(torch.cat([torch.tensor([1]), body, torch.tensor([2])]))
        full = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
        hole = (torch.rand(full.shape, generator=holes) < 0.3) & (full > 3)
        yield full.masked_fill(hole, 3), full == 0, hole, full[hole]  # <- pad_mask mean_over_all


net = Encoder()
net.load_state_dict(rename(torch.load(sys.argv[1])), strict=True)
net.train()
params = dict(net.named_parameters())
memory, losses = {}, []

for t, (ids, is_pad, hole, target) in enumerate(batches(5, 6), start=1):
    logits = net(ids, is_pad, hole)
    loss = F.cross_entropy(logits, target, reduction="sum") / hole.sum()  # <- mean_over_all
    net.zero_grad()
    loss.backward()
    grads = {n: p.grad for n, p in params.items()}
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads.values()]))
    if norm > 5.0:
        grads = {n: g * (5.0 / (norm + 1e-6)) for n, g in grads.items()}
    adamw_(params, grads, memory, t, lr=5e-3 * (1 - (t - 1) / 10), wd=0.5)  # <- decay_biases
    losses.append(loss.item())
print(losses)
