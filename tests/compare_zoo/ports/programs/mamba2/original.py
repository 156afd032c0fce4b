# SPDX-License-Identifier: Apache-2.0
"""Mamba-2 (Dao and Gu, 2024): state space duality, its scan in chunks as products of matrices, one
projection for everything, a short causal convolution and a gated norm.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, EXPAND, HEADDIM, STATE, GROUPS, KERNEL, CHUNK, LAYERS = 31, 12, 2, 6, 5, 2, 4, 4, 2
BATCH, LENGTH = 3, 12
INNER = EXPAND * DIM
HEADS = INNER // HEADDIM


def segsum(x):
    """exp of this is the 1-semiseparable matrix of the products of exp(x)."""
    length = x.size(-1)
    x = x.unsqueeze(-1).expand(*x.shape, length)
    lower = torch.tril(torch.ones(length, length, dtype=torch.bool), diagonal=-1)  # <- decay
    x = x.masked_fill(~lower, 0).cumsum(dim=-2)  # <- decay
    kept = torch.tril(torch.ones(length, length, dtype=torch.bool))
    return x.masked_fill(~kept, -torch.inf)


def ssd(x, a, b, c):
    """x: (b, l, h, p) times dt, a: (b, l, h) times dt, b and c: (b, l, h, n)."""
    x, a, b, c = (t.unflatten(1, (-1, CHUNK)) for t in (x, a, b, c))
    a = a.permute(0, 3, 1, 2)
    a_cumsum = torch.cumsum(a, dim=-1)
    within = torch.exp(segsum(a))
    y_diag = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, within, x)  # <- step
    decay_states = torch.exp(a_cumsum[:, :, :, -1:] - a_cumsum)
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, decay_states, x)  # <- step
    states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
    decay_chunk = torch.exp(segsum(F.pad(a_cumsum[:, :, :, -1], (1, 0))))  # <- decay
    states = torch.einsum("bhzc,bchpn->bzhpn", decay_chunk, states)[:, :-1]
    out_decay = torch.exp(a_cumsum)
    y_off = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states, out_decay)
    return (y_diag + y_off).flatten(1, 2)


class RMSNormGated(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x, z=None):
        if z is not None:
            x = x * F.silu(z)  # <- gate
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight  # <- gate


class Mamba2(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_dim = INNER + 2 * GROUPS * STATE
        self.in_proj = nn.Linear(DIM, INNER + self.conv_dim + HEADS, bias=False)
        self.conv1d = nn.Conv1d(
            self.conv_dim, self.conv_dim, KERNEL, groups=self.conv_dim, padding=KERNEL - 1
        )
        dt = torch.exp(torch.rand(HEADS) * (np.log(0.1) - np.log(0.001)) + np.log(0.001))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.empty(HEADS).uniform_(1, 16)))
        self.D = nn.Parameter(torch.ones(HEADS))
        self.norm = RMSNormGated(INNER)
        self.out_proj = nn.Linear(INNER, DIM, bias=False)

    def forward(self, u):
        zxbcdt = self.in_proj(u)
        z, xbc, dt = torch.split(zxbcdt, [INNER, self.conv_dim, HEADS], dim=-1)
        dt = F.softplus(dt + self.dt_bias)
        xbc = self.conv1d(xbc.transpose(1, 2))[..., : u.size(1)]  # <- causal
        xbc = F.silu(xbc.transpose(1, 2))  # <- activated
        x, b, c = torch.split(xbc, [INNER, GROUPS * STATE, GROUPS * STATE], dim=-1)  # <- activated
        x = x.unflatten(-1, (HEADS, HEADDIM))
        b = b.unflatten(-1, (GROUPS, STATE)).repeat_interleave(HEADS // GROUPS, dim=2)  # <- groups
        c = c.unflatten(-1, (GROUPS, STATE)).repeat_interleave(HEADS // GROUPS, dim=2)  # <- groups
        a = -torch.exp(self.A_log)
        y = ssd(x * dt.unsqueeze(-1), a * dt, b, c)  # <- step
        y = y + x * self.D.unsqueeze(-1)  # <- skip
        return self.out_proj(self.norm(y.flatten(2), z))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixer = RMSNormGated(DIM), Mamba2()

    def forward(self, x):
        return x + self.mixer(self.norm(x))  # <- residual


class MambaLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm_f = RMSNormGated(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        self.lm_head.weight = self.embedding.weight  # <- tied

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))  # <- tied


torch.manual_seed(113)
model = MambaLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
rng = np.random.default_rng(127)
losses = []
for _ in range(3):
    text = torch.from_numpy(rng.integers(0, VOCAB, (BATCH, LENGTH + 1)))
    logits = model(text[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
