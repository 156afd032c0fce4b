# SPDX-License-Identifier: Apache-2.0
"""A one-block selective state space language model, scan written as a plain loop over time."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class MambaBlock(nn.Module):
    def __init__(self, d_model=16, d_inner=24, d_state=4, d_conv=4, dt_rank=3):
        super().__init__()
        self.d_inner, self.d_state, self.dt_rank = d_inner, d_state, dt_rank
        self.in_proj = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.conv1d = nn.Conv1d(d_inner, d_inner, d_conv, groups=d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, d_inner, bias=True)
        A = torch.arange(1, d_state + 1, dtype=torch.float32).repeat(d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(d_inner))
        self.out_proj = nn.Linear(d_inner, d_model, bias=False)
        nn.init.normal_(self.in_proj.weight, std=0.6)
        nn.init.normal_(self.x_proj.weight, std=0.4)

    def forward(self, x):
        (b, l, _) = x.shape
        (x, res) = self.in_proj(x).split([self.d_inner, self.d_inner], dim=-1)
        x = self.conv1d(x.transpose(1, 2))  # <- conv_shift
        x = x[:, :, :l].transpose(1, 2)  # <- conv_shift
        x = F.silu(x)
        y = self.ssm(x)
        y = y * F.silu(res)
        return self.out_proj(y)

    def ssm(self, x):
        A = -torch.exp(self.A_log.float())
        x_dbl = self.x_proj(x)
        (delta, B, C) = x_dbl.split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        delta = F.softplus(self.dt_proj(delta))  # <- delta_softplus
        return self.selective_scan(x, delta, A, B, C, self.D)

    def selective_scan(self, u, delta, A, B, C, D):
        (b, l, d_in) = u.shape
        deltaA = torch.exp(delta.unsqueeze(-1) * A)
        deltaB_u = delta.unsqueeze(-1) * B.unsqueeze(2) * u.unsqueeze(-1)
        x = torch.zeros((b, d_in, self.d_state))
        ys = []
        for i in range(l):
            x = deltaA[:, i] * x + deltaB_u[:, i]  # <- decay_shift
            ys.append((x * C[:, i].unsqueeze(1)).sum(-1))
        y = torch.stack(ys, dim=1)
        return y + u * D  # <- skip_input


class TinyMamba(nn.Module):
    def __init__(self, vocab=20, d_model=16):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.norm = RMSNorm(d_model)
        self.mixer = MambaBlock(d_model)
        self.norm_f = RMSNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        x = self.mixer(self.norm(x)) + x
        return self.lm_head(self.norm_f(x))


torch.manual_seed(0)
model = TinyMamba()
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(11)
tokens = torch.randint(0, 20, (4, 4, 14), generator=gen)
decay = [model.mixer.in_proj.weight, model.mixer.x_proj.weight, model.mixer.out_proj.weight]
ids_decay = {id(p) for p in decay}
rest = [p for p in model.parameters() if id(p) not in ids_decay]
optimizer = torch.optim.SGD(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest}],  # <- no_decay
    lr=0.1,
    momentum=0.9,
)

losses = []
for batch in tokens:
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 20), batch[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- no_decay
    losses.append(loss.item())
print(losses)
