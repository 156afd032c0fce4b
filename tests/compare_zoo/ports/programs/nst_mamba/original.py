# SPDX-License-Identifier: Apache-2.0
"""A small Mamba language model after the mamba-minimal repository, with a sequential scan."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, D_MODEL, D_INNER, D_STATE, D_CONV, DT_RANK, N_LAYER = 41, 24, 48, 6, 4, 3, 2


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj = nn.Linear(D_MODEL, D_INNER * 2, bias=False)
        self.conv1d = nn.Conv1d(D_INNER, D_INNER, D_CONV, groups=D_INNER,  # <- conv_side
                                padding=D_CONV - 1)  # <- conv_side
        self.x_proj = nn.Linear(D_INNER, DT_RANK + D_STATE * 2, bias=False)
        self.dt_proj = nn.Linear(DT_RANK, D_INNER, bias=True)
        A = torch.arange(1, D_STATE + 1).float().repeat(D_INNER, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(D_INNER))
        self.out_proj = nn.Linear(D_INNER, D_MODEL, bias=False)

    def forward(self, x):
        b, l, _ = x.shape
        x, res = self.in_proj(x).split([D_INNER, D_INNER], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2)  # <- conv_side
        x = F.silu(x)
        y = self.ssm(x)
        y = y * F.silu(res)  # <- skip_gate
        return self.out_proj(y)

    def ssm(self, x):
        A = -torch.exp(self.A_log.float())
        delta, B, C = self.x_proj(x).split([DT_RANK, D_STATE, D_STATE], dim=-1)
        delta = F.softplus(self.dt_proj(delta))  # <- dt_bias
        return self.selective_scan(x, delta, A, B, C, self.D)

    def selective_scan(self, u, delta, A, B, C, D):
        b, l, d = u.shape
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))  # <- decay_shift
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        state = torch.zeros(b, d, A.shape[1])
        ys = []
        for i in range(l):
            state = deltaA[:, i] * state + deltaB_u[:, i]  # <- decay_shift
            ys.append(torch.einsum("bdn,bn->bd", state, C[:, i]))
        return torch.stack(ys, dim=1) + u * D  # <- skip_gate


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, D_MODEL)
        self.norms = nn.ModuleList(RMSNorm(D_MODEL) for _ in range(N_LAYER))
        self.mixers = nn.ModuleList(MambaBlock() for _ in range(N_LAYER))
        self.norm_f = RMSNorm(D_MODEL)
        nn.init.normal_(self.embedding.weight, std=0.2)

    def forward(self, ids):
        x = self.embedding(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            x = mixer(norm(x)) + x
        return F.linear(self.norm_f(x), self.embedding.weight)


torch.manual_seed(3)
model = Mamba()
with torch.no_grad():
    for m in model.mixers:
        dt = torch.exp(torch.rand(D_INNER) * (math.log(0.5) - math.log(0.01)) + math.log(0.01))
        m.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
torch.save(model.state_dict(), sys.argv[1])

opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.999), eps=1e-6)  # <- adam_eps
gen = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    batch = torch.randint(VOCAB, (4, 13), generator=gen)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()  # <- adam_eps
    losses.append(loss.item())
print(losses)
