# SPDX-License-Identifier: Apache-2.0
"""Mean-teacher training of a small mixer forecaster with accelerate."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

PATCHES, PATCH, DIM, HIDDEN, HORIZON = 6, 4, 16, 24, 3
UPDATES, ACCUM, BATCH = 5, 2, 6


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_t = nn.LayerNorm(DIM, eps=1e-6)  # <- norm_eps
        self.mix = nn.Linear(PATCHES, PATCHES)
        self.norm_c = nn.LayerNorm(DIM, eps=1e-6)  # <- norm_eps
        self.gate = nn.Linear(DIM, HIDDEN, bias=False)
        self.value = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        x = x + self.mix(self.norm_t(x).transpose(1, 2)).transpose(1, 2)  # <- norm_eps
        h = self.norm_c(x)  # <- norm_eps
        return x + self.down(F.silu(self.gate(h)) * self.value(h))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PATCH, DIM)
        self.blocks = nn.ModuleList([MixerBlock(), MixerBlock()])
        self.norm = nn.LayerNorm(DIM, eps=1e-6)  # <- norm_eps
        self.head = nn.Linear(DIM, HORIZON)

    def forward(self, series):
        x = self.embed(series.unflatten(1, (PATCHES, PATCH)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))  # <- norm_eps


class EmaTeacher:
    """Slow copy of the student; the decay itself warms up."""

    def __init__(self, student, decay=0.9):
        self.module = copy.deepcopy(student).requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, student):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))  # <- ema_ramp
        for slow, fast in zip(self.module.parameters(), student.parameters()):
            slow.lerp_(fast, 1 - decay)

    @torch.no_grad()
    def __call__(self, series):
        return self.module(series)


def make_loader():
    gen = torch.Generator().manual_seed(55)
    n = UPDATES * ACCUM * BATCH
    clean = 0.3 * torch.randn(n, PATCHES * PATCH, generator=gen).cumsum(1)
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=gen)
    future = clean[:, -1:] + 0.5 * torch.randn(n, HORIZON, generator=gen)
    return DataLoader(TensorDataset(clean, noisy, future), batch_size=BATCH)


torch.manual_seed(3)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUM)
model = Forecaster()
nn.init.normal_(model.embed.weight, std=0.05)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=8e-3, weight_decay=0.05)  # <- l2_decoupled
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, make_loader(), scheduler)
teacher = EmaTeacher(accelerator.unwrap_model(model))

losses = []
for clean, noisy, future in loader:
    with accelerator.accumulate(model):
        prediction = model(noisy)
        soft = teacher(clean)
        trust = torch.exp(-(prediction - future).abs()).detach()  # <- trust_grad
        consistency = (trust * (prediction - soft) ** 2).mean()
        loss = F.huber_loss(prediction, future, delta=0.4) + 0.5 * consistency  # <- huber_delta
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()  # <- l2_decoupled
        scheduler.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        teacher.update(accelerator.unwrap_model(model))
    losses.append(loss.item())
print(losses)
