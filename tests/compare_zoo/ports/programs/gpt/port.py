# SPDX-License-Identifier: Apache-2.0
"""The same GPT as a team writes it that has no fused kernels: every norm, activation, loss and
update by hand, separate q, k and v, an embedding by a product.
"""

import sys

import numpy as np
import torch
from torch import nn

VOCAB, DIM, NUM_HEADS, DEPTH, SEQ = 29, 24, 3, 2, 10
HEAD_DIM = DIM // NUM_HEADS


class Norm(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(DIM))
        self.beta = nn.Parameter(torch.zeros(DIM))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = (x - mean).pow(2).mean(-1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + self.eps)  # <- eps
        return self.gamma * x + self.beta


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(DIM, DIM)
        self.key = nn.Linear(DIM, DIM)
        self.value = nn.Linear(DIM, DIM)
        self.dense = nn.Linear(DIM, DIM)

    def forward(self, x):
        batch, length, _ = x.shape
        shape = (batch, length, NUM_HEADS, HEAD_DIM)
        q = self.query(x).reshape(shape)  # <- mapping post_norm
        k = self.key(x).reshape(shape)  # <- mapping post_norm
        v = self.value(x).reshape(shape)  # <- post_norm
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / HEAD_DIM**0.5  # <- scale
        future = torch.triu(torch.full((length, length), -1e9), diagonal=1)  # <- mask
        scores = scores + future  # <- mask scale
        scores = scores - scores.amax(-1, keepdim=True)  # <- axis
        weights = scores.exp()
        weights = weights / weights.sum(-1, keepdim=True)  # <- axis
        mixed = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return self.dense(mixed.reshape(batch, length, DIM))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        x = self.up(x)
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)  # <- gelu
        return self.down(0.5 * x * (1 + torch.tanh(inner)))  # <- gelu


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_a, self.norm_b = Norm(), Norm()
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.norm_a(x))  # <- post_norm eps
        return x + self.feed_forward(self.norm_b(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(VOCAB, DIM) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, SEQ, DIM) * 0.02)
        self.layers = nn.Sequential(*[Layer() for _ in range(DEPTH)])
        self.last_norm = Norm()

    def forward(self, tokens):
        chosen = (tokens.unsqueeze(-1) == torch.arange(VOCAB)).float()
        x = chosen @ self.table + self.positions
        return self.last_norm(self.layers(x)) @ self.table.t()


def carried_over(old):
    """The names of this file for the tensors of the original."""
    new = {"table": old["wte.weight"], "positions": old["wpe.weight"][None]}
    new["last_norm.gamma"], new["last_norm.beta"] = old["ln_f.weight"], old["ln_f.bias"]
    for i in range(DEPTH):
        mine, theirs = f"layers.{i}.", f"h.{i}."
        for kind in ("weight", "bias"):
            q, k, v = old[f"{theirs}attn.c_attn.{kind}"].chunk(3)  # <- mapping
            new[f"{mine}attention.query.{kind}"] = q
            new[f"{mine}attention.key.{kind}"] = k
            new[f"{mine}attention.value.{kind}"] = v
            new[f"{mine}attention.dense.{kind}"] = old[f"{theirs}attn.c_proj.{kind}"]
            new[f"{mine}feed_forward.up.{kind}"] = old[f"{theirs}mlp.c_fc.{kind}"]
            new[f"{mine}feed_forward.down.{kind}"] = old[f"{theirs}mlp.c_proj.{kind}"]
            norm = "gamma" if kind == "weight" else "beta"
            new[f"{mine}norm_a.{norm}"] = old[f"{theirs}ln_1.{kind}"]
            new[f"{mine}norm_b.{norm}"] = old[f"{theirs}ln_2.{kind}"]
    return new


def cross_entropy(logits, targets):
    logits = logits.flatten(0, 1)
    log_normaliser = torch.logsumexp(logits, dim=-1)
    right = logits.gather(1, targets.reshape(-1, 1)).squeeze(1)
    return (log_normaliser - right).mean()


class AdamW:
    def __init__(self, parameters, lr, betas, decay, eps=1e-8):
        self.parameters, self.lr, self.betas = list(parameters), lr, betas
        self.decay, self.eps, self.t = decay, eps, 0
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v in zip(self.parameters, self.m, self.v):
            m.copy_(b1 * m + (1 - b1) * p.grad)
            v.copy_(b2 * v + (1 - b2) * p.grad**2)
            m_hat = m / (1 - b1**self.t)
            v_hat = v / (1 - b2**self.t)
            p.mul_(1 - self.lr * self.decay)  # <- decay rate
            p.sub_(self.lr * m_hat / (v_hat.sqrt() + self.eps))  # <- rate decay
            p.grad = None


net = Decoder()
net.load_state_dict(carried_over(torch.load(sys.argv[1])))
adamw = AdamW(net.parameters(), lr=3e-3, betas=(0.9, 0.95), decay=0.1)
text = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, (3, 4, SEQ + 1)))
losses = []
for batch in text:
    loss = cross_entropy(net(batch[:, :-1]), batch[:, 1:])
    loss.backward()
    adamw.step()
    losses.append(loss.item())
