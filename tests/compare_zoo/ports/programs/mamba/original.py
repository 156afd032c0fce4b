# SPDX-License-Identifier: Apache-2.0
"""A small language model of selective state space blocks as Gu and Dao (2023) have them: one
projection in, a causal depthwise convolution, steps by softplus, a scan over time, AdamW.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D_MODEL, LAYERS, BATCH, LENGTH = 29, 16, 2, 4, 12
D_STATE, D_CONV, EXPAND = 4, 4, 2
D_INNER, DT_RANK = EXPAND * D_MODEL, math.ceil(D_MODEL / 16) + 1
DT_MIN, DT_MAX = 0.05, 1.0


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(D_MODEL, 2 * D_INNER, bias=False)
        self.conv1d = nn.Conv1d(D_INNER, D_INNER, D_CONV, padding=D_CONV - 1, groups=D_INNER)
        self.x_proj = nn.Linear(D_INNER, DT_RANK + 2 * D_STATE, bias=False)
        self.dt_proj = nn.Linear(DT_RANK, D_INNER)
        dt = torch.exp(torch.rand(D_INNER) * math.log(DT_MAX / DT_MIN) + math.log(DT_MIN))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus undone
        self.A_log = nn.Parameter(torch.arange(1.0, D_STATE + 1).log().repeat(D_INNER, 1))
        self.D = nn.Parameter(torch.ones(D_INNER))
        self.out_proj = nn.Linear(D_INNER, D_MODEL, bias=False)

    def forward(self, hidden):
        x, z = self.in_proj(hidden).chunk(2, dim=-1)  # <- halves
        x = self.conv1d(x.transpose(1, 2))[..., : hidden.shape[1]].transpose(1, 2)  # <- taps
        x = F.silu(x)
        dt, b, c = self.x_proj(x).split([DT_RANK, D_STATE, D_STATE], dim=-1)
        dt = F.softplus(self.dt_proj(dt))  # <- delta
        y = self.selective_scan(x, dt, b, c)
        return self.out_proj(y * F.silu(z))  # <- gate halves

    def selective_scan(self, x, dt, b, c):
        a = -torch.exp(self.A_log)
        state = x.new_zeros(x.shape[0], D_INNER, D_STATE)
        ys = []
        for t in range(x.shape[1]):
            da = torch.exp(dt[:, t, :, None] * a)  # <- inclusive
            db = dt[:, t, :, None] * b[:, t, None, :]
            state = da * state + db * x[:, t, :, None]  # <- inclusive
            ys.append((state * c[:, t, None, :]).sum(-1))
        return torch.stack(ys, dim=1) + x * self.D


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixer = RMSNorm(D_MODEL), Mamba()

    def forward(self, x):
        return x + self.mixer(self.norm(x))  # <- residual


class MambaLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, D_MODEL)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm_f = RMSNorm(D_MODEL)
        self.lm_head = nn.Linear(D_MODEL, VOCAB, bias=False)
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
        self.lm_head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def parameter_groups(model):
    decayed, free = [], []
    for name, p in model.named_parameters():
        (free if p.dim() == 1 or "A_log" in name else decayed).append(p)
    return [{"params": decayed, "weight_decay": 0.1}, {"params": free, "weight_decay": 0.0}]


torch.manual_seed(12)
model = MambaLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(parameter_groups(model), lr=4e-3, betas=(0.9, 0.95))
rng = np.random.default_rng(12)
losses = []
for _ in range(3):
    tokens = torch.from_numpy(rng.integers(0, VOCAB, (BATCH, LENGTH + 1)))
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))  # <- following
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decoupled
    losses.append(loss.item())
