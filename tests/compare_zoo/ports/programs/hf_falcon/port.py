# SPDX-License-Identifier: Apache-2.0
"""Falcon in own code: one matrix a layer for queries, keys and values as the package stores it,
torch's fused attention, AdamW and the clipping of gradients written out.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, INNER, DEPTH, HEADS, GROUPS = 35, 32, 72, 2, 4, 2
HEAD, SHARE = DIM // HEADS, HEADS // GROUPS


def rope(x):
    """(batch, heads, time, HEAD)"""
    angle = torch.arange(x.shape[2])[:, None] / 10000.0 ** (torch.arange(0, HEAD, 2) / HEAD)
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    a, b = x.tensor_split(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_a, self.norm_m = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, (HEADS + 2 * GROUPS) * HEAD, bias=False)
        self.mix = nn.Linear(DIM, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, INNER, bias=False), nn.Linear(INNER, DIM, bias=False)

    def attend(self, x):
        batch, time, _ = x.shape
        qkv = self.qkv(x).view(batch, time, GROUPS, SHARE + 2, HEAD)  # <- groups
        q, k, v = qkv.split([SHARE, 1, 1], dim=3)  # <- groups
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))  # <- groups
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=True)
        return self.mix(y.transpose(1, 2).flatten(2))

    def forward(self, x):
        attended = self.attend(self.norm_a(x))  # <- swapped
        fed = self.down(F.gelu(self.up(self.norm_m(x))))  # <- sequential swapped
        return x + attended + fed


class Falcon(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)

    def load(self, old):
        with torch.no_grad():
            self.embed.weight.copy_(old["transformer.word_embeddings.weight"])
            take(self.norm, old, "transformer.ln_f")
            for n, block in enumerate(self.blocks):
                prefix = f"transformer.h.{n}."
                take(block.norm_a, old, prefix + "ln_attn")  # <- swapped
                take(block.norm_m, old, prefix + "ln_mlp")  # <- swapped
                take(block.qkv, old, prefix + "self_attention.query_key_value")
                take(block.mix, old, prefix + "self_attention.dense")
                take(block.up, old, prefix + "mlp.dense_h_to_4h")
                take(block.down, old, prefix + "mlp.dense_4h_to_h")


def take(module, old, name):
    for kind, parameter in module.named_parameters():
        parameter.copy_(old[f"{name}.{kind}"])


def clip(gradients, most):
    total = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()  # <- clip
    for g in gradients:
        g.mul_((most / (total + 1e-6)).clamp(max=1.0))  # <- clip


class Adam:
    def __init__(self, weights):
        self.weights, self.t = weights, 0
        self.m = [torch.zeros_like(w) for w in weights]
        self.v = [torch.zeros_like(w) for w in weights]

    @torch.no_grad()
    def step(self, gradients):
        self.t += 1
        for w, g, m, v in zip(self.weights, gradients, self.m, self.v):
            w.mul_(1 - 3e-3 * 0.01)
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.05)
            mean = m / (1 - 0.9**self.t)
            spread = (v / (1 - 0.95**self.t)).sqrt()  # <- correction
            w.addcdiv_(mean, spread + 1e-8, value=-3e-3)  # <- correction


falcon = Falcon()
falcon.load(torch.load(sys.argv[1]))
weights = list(falcon.parameters())
adam = Adam(weights)
rng = np.random.default_rng(37)
losses = []
for _ in range(4):
    ids = torch.tensor(rng.integers(0, VOCAB, (3, 10)))
    log_probs = falcon(ids).log_softmax(-1)
    picked = log_probs[:, :-1].gather(-1, ids[:, 1:, None])  # <- shift
    loss = -picked.mean()  # <- shift
    gradients = torch.autograd.grad(loss, weights)
    clip(gradients, 0.5)  # <- clip
    adam.step(gradients)
    losses.append(loss.item())
