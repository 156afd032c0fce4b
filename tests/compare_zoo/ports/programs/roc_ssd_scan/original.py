# SPDX-License-Identifier: Apache-2.0
"""A Mamba-2 style language model whose state runs step by step along the sequence."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(51)

VOCAB, DIM, HEADS, HEAD, STATE, KERNEL = 30, 20, 4, 8, 6, 4
INNER = HEADS * HEAD
BATCH, SEQ, STEPS, WARMUP, LR = 3, 20, 5, 4, 2e-2


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        channels = INNER + 2 * STATE
        self.in_proj = nn.Linear(DIM, INNER + channels + HEADS, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, KERNEL, groups=channels, padding=KERNEL - 1)
        dt = torch.exp(torch.rand(HEADS) * (math.log(0.5) - math.log(0.05)) + math.log(0.05))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, HEADS + 1)))
        self.D = nn.Parameter(torch.ones(HEADS))
        self.norm = RMSNorm(INNER)
        self.out_proj = nn.Linear(INNER, DIM, bias=False)

    def forward(self, u):
        length = u.size(1)
        z, xbc, dt = self.in_proj(u).split([INNER, INNER + 2 * STATE, HEADS], dim=-1)
        xbc = F.silu(self.conv1d(xbc.transpose(1, 2))[..., :length].transpose(1, 2))
        x, B, C = xbc.split([INNER, STATE, STATE], dim=-1)
        x = x.unflatten(-1, (HEADS, HEAD))
        dt = F.softplus(dt + self.dt_bias)
        A = -torch.exp(self.A_log)
        h = u.new_zeros(u.size(0), HEADS, HEAD, STATE)
        ys = []
        for t in range(length):
            decay = torch.exp(dt[:, t] * A)[..., None, None]
            inflow = torch.einsum("bh,bhp,bn->bhpn", dt[:, t], x[:, t], B[:, t])
            h = decay * h + inflow  # <- segment_edge
            ys.append(torch.einsum("bhpn,bn->bhp", h, C[:, t]))
        y = torch.stack(ys, 1) + self.D[:, None] * x
        y = self.norm(y.flatten(2) * F.silu(z))  # <- gate_first
        return self.out_proj(y)


class MambaLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.norms = nn.ModuleList(RMSNorm(DIM) for _ in range(2))
        self.mixers = nn.ModuleList(Mixer() for _ in range(2))
        self.norm_f = RMSNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.lm_head(self.norm_f(x))


def batches():
    gen = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        period = torch.randint(1, VOCAB, (BATCH, 5), generator=gen)
        ids = period.repeat(1, 5)[:, : SEQ + 1]
        noisy = torch.rand(ids.shape, generator=gen) < 0.1
        ids = torch.where(noisy, torch.randint(1, VOCAB, ids.shape, generator=gen), ids)
        lengths = torch.randint(8, SEQ + 1, (BATCH,), generator=gen)
        pad = torch.arange(SEQ) >= lengths[:, None]
        yield ids[:, :-1].masked_fill(pad, 0), ids[:, 1:].masked_fill(pad, -100)


model = MambaLM()
nn.init.normal_(model.embedding.weight, std=0.3)
torch.save(model.state_dict(), sys.argv[1])
plain = ("A_log", "D", "dt_bias", "bias", "norm")  # <- gain_decay
decay, no_decay = [], []
for name, p in model.named_parameters():
    (no_decay if any(word in name for word in plain) else decay).append(p)  # <- gain_decay
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
    lr=LR, betas=(0.9, 0.95), eps=1e-6,
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / WARMUP))  # <- warmup_step
losses = []
for ids, labels in batches():
    logits = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)  # <- ignored_mean
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- gain_decay warmup_step
    scheduler.step()
    losses.append(loss.item())
print(losses)
