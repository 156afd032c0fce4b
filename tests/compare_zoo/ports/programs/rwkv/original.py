# SPDX-License-Identifier: Apache-2.0
"""A small RWKV-4 as Peng et al. (2023) have it: time mixing by a numerically safe recurrence over
numerators and denominators, channel mixing with a squared relu, Adam with rates by kind.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, EMBD, LAYERS, CTX, BATCH = 31, 16, 2, 10, 4


def mixing_ratios(layer):
    ratio = 1.0 - layer / LAYERS
    return torch.pow(torch.arange(EMBD) / EMBD, ratio).view(1, 1, EMBD)


class RWKVTimeMix(nn.Module):
    def __init__(self, layer):
        super().__init__()
        depth = layer / (LAYERS - 1)
        h = torch.arange(EMBD) / (EMBD - 1)
        self.time_decay = nn.Parameter(-5 + 8 * h ** (0.7 + 1.3 * depth))
        zigzag = torch.tensor([(i + 1) % 3 - 1 for i in range(EMBD)]) * 0.5
        self.time_first = nn.Parameter(torch.full((EMBD,), 0.3).log() + zigzag)
        mix = mixing_ratios(layer)
        self.time_mix_k = nn.Parameter(mix.clone())
        self.time_mix_v = nn.Parameter(mix + 0.3 * depth)
        self.time_mix_r = nn.Parameter(0.5 * mix)
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key = nn.Linear(EMBD, EMBD, bias=False)
        self.value = nn.Linear(EMBD, EMBD, bias=False)
        self.receptance = nn.Linear(EMBD, EMBD, bias=False)
        self.output = nn.Linear(EMBD, EMBD, bias=False)

    def forward(self, x):
        xx = self.time_shift(x)  # <- shift
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)  # <- mix
        xv = x * self.time_mix_v + xx * (1 - self.time_mix_v)  # <- mix
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)  # <- mix
        k, v, r = self.key(xk), self.value(xv), self.receptance(xr)  # <- order
        return self.output(torch.sigmoid(r) * self.wkv(k, v))

    def wkv(self, k, v):
        w, u = -torch.exp(self.time_decay), self.time_first
        num = den = torch.zeros_like(k[:, 0])
        top = torch.full_like(num, -1e38)
        out = []
        for t in range(k.shape[1]):
            kt, vt = k[:, t], v[:, t]
            most = torch.maximum(top, u + kt)  # <- bonus
            e1, e2 = torch.exp(top - most), torch.exp(u + kt - most)  # <- bonus
            out.append((e1 * num + e2 * vt) / (e1 * den + e2))  # <- bonus distance
            most = torch.maximum(top + w, kt)  # <- distance
            e1, e2 = torch.exp(top + w - most), torch.exp(kt - most)  # <- distance
            num, den, top = e1 * num + e2 * vt, e1 * den + e2, most  # <- distance
        return torch.stack(out, dim=1)


class RWKVChannelMix(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.time_mix_k = nn.Parameter(mixing_ratios(layer))
        self.time_mix_r = nn.Parameter(mixing_ratios(layer))
        self.key = nn.Linear(EMBD, 4 * EMBD, bias=False)
        self.receptance = nn.Linear(EMBD, EMBD, bias=False)
        self.value = nn.Linear(4 * EMBD, EMBD, bias=False)

    def forward(self, x):
        xx = self.time_shift(x)  # <- shift
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)  # <- mix
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)  # <- mix
        k = torch.square(torch.relu(self.key(xk)))  # <- square
        return torch.sigmoid(self.receptance(xr)) * self.value(k)


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.ln0 = nn.LayerNorm(EMBD) if layer == 0 else nn.Identity()
        self.ln1, self.ln2 = nn.LayerNorm(EMBD), nn.LayerNorm(EMBD)
        self.att, self.ffn = RWKVTimeMix(layer), RWKVChannelMix(layer)

    def forward(self, x):
        x = self.ln0(x)  # <- first
        x = x + self.att(self.ln1(x))  # <- first
        return x + self.ffn(self.ln2(x))


class RWKV(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, EMBD)
        self.blocks = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        self.ln_out = nn.LayerNorm(EMBD)
        self.head = nn.Linear(EMBD, VOCAB, bias=False)

    def forward(self, idx):
        x = self.emb(idx)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_out(x))

    def configure_optimizers(self, lr):
        groups = {1.0: [], 2.0: [], 3.0: []}
        for name, p in self.named_parameters():
            scale = 2.0 if "time_decay" in name else 3.0 if "time_first" in name else 1.0
            groups[scale].append(p)
        groups = [{"params": params, "lr": lr * scale} for scale, params in groups.items()]
        return torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-8)


rng = np.random.default_rng(21)
chunks = torch.from_numpy(rng.integers(0, VOCAB, (3, BATCH, CTX + 1)))
torch.manual_seed(21)
model = RWKV()
torch.save(model.state_dict(), sys.argv[1])
optimizer = model.configure_optimizers(lr=0.01)
losses = []
for chunk in chunks:
    logits = model(chunk[:, :-1])
    loss = F.cross_entropy(logits.view(-1, VOCAB), chunk[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- correction
    losses.append(loss.item())
