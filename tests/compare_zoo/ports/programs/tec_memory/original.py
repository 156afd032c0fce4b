# SPDX-License-Identifier: Apache-2.0
"""Anomaly detection on sensor windows: memory autoencoder, sparse addressing, usage EMA."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
SENSORS, WINDOW, CODE, SLOTS = 4, 16, 8, 12


def hard_shrink(w, lam, eps=1e-10):
    w = F.relu(w - lam) * w / (torch.abs(w - lam) + eps)  # <- shrink_threshold
    return F.normalize(w, p=1, dim=1)  # <- shrink_threshold


class MemoryBank(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Parameter(torch.randn(SLOTS, CODE))
        self.register_buffer("usage", torch.full((SLOTS,), 1.0 / SLOTS))

    def forward(self, z):
        sim = F.cosine_similarity(z.unsqueeze(1), self.items.unsqueeze(0), dim=2)
        att = F.softmax(4.0 * sim - torch.log(self.usage), dim=1)  # <- usage_prior
        att = hard_shrink(att, 1.0 / SLOTS)
        with torch.no_grad():
            self.usage.mul_(0.8).add_(0.2 * (0.5 * att.mean(0) + 0.5 / SLOTS))
        return att @ self.items, att


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv1d(SENSORS, 8, 4, stride=2, padding=1)
        self.down2 = nn.Conv1d(8, CODE, 4, stride=2, padding=1)
        self.bn = nn.BatchNorm1d(CODE)
        self.memory = MemoryBank()
        self.up1 = nn.ConvTranspose1d(CODE, 8, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose1d(8, SENSORS, 4, stride=2, padding=1)

    def forward(self, x):
        h = self.bn(self.down2(F.leaky_relu(self.down1(x), 0.1)))  # <- batch_statistics
        b, c, t = h.shape
        z = h.permute(0, 2, 1).reshape(b * t, c)
        read, att = self.memory(z)
        read = read.view(b, t, c).permute(0, 2, 1)
        return self.up2(F.leaky_relu(self.up1(read), 0.1)), att, z, read  # <- up_slope


def train_loss(model, x):
    recon, att, z, read = model(x)
    rec = ((recon - x) ** 2).sum(dim=(1, 2)).mean() / WINDOW
    entropy = -(att * torch.log(att + 1e-12)).sum(1).mean()
    read = read.permute(0, 2, 1).reshape(-1, CODE)
    commit = F.mse_loss(z, read.detach())  # <- commitment_stop
    return rec + 0.05 * entropy + 0.25 * commit  # <- commitment_stop


class Averager:
    """Keeps an equal-weight average of the weights of every step after the first (SWA)."""

    def __init__(self, model):
        self.mean, self.n = {}, 0
        self.model = model

    def update(self):
        self.n += 1
        for k, p in self.model.named_parameters():
            old = self.mean.get(k, torch.zeros_like(p))
            self.mean[k] = old + (p.detach() - old) / self.n


model = Autoencoder()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(101)
params = [
    {"params": [p], "lr": 0.1 if n.startswith("memory") else 0.03}
    for n, p in model.named_parameters()
]
opt = torch.optim.Adagrad(params, lr_decay=0.2, initial_accumulator_value=0.01)
avg, losses = Averager(model), []
for it in range(4):
    t = torch.arange(WINDOW).float()
    rate = 0.2 + torch.rand(6, SENSORS, 1, generator=gen)
    x = torch.sin(rate * t) + 0.1 * torch.randn(6, SENSORS, WINDOW, generator=gen)
    loss = train_loss(model, x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    avg.update()
    losses.append(loss.item())
model.load_state_dict(avg.mean, strict=False)
model.eval()
with torch.no_grad():
    losses.append(train_loss(model, x).item())
print(losses)
