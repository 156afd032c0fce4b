# SPDX-License-Identifier: Apache-2.0
"""Residual SwiGLU network with RMSNorm, written plainly for autograd."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.scale * x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()  # <- rms_reduce


class SwiGLU(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.w1 = nn.Linear(d, h, bias=False)
        self.w3 = nn.Linear(d, h, bias=False)
        self.w2 = nn.Linear(h, d, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- swapped


class Net(nn.Module):
    def __init__(self, vocab=32, d=20, h=40, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.norms = nn.ModuleList(RMSNorm(d) for _ in range(depth))
        self.ffns = nn.ModuleList(SwiGLU(d, h) for _ in range(depth))
        self.final = RMSNorm(d)

    def forward(self, ids):
        x = self.embed(ids).cumsum(dim=1)  # <- bag_back
        for n, f in zip(self.norms, self.ffns):
            x = x + f(n(x))
        return self.final(x) @ self.embed.weight.T                          # tied readout


torch.manual_seed(0)
net = Net()
torch.save(net.state_dict(), sys.argv[1])
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.8, nesterov=True)  # <- nesterov
gen = torch.Generator().manual_seed(31)
losses = []
for _ in range(4):
    ids = torch.randint(0, 32, (10, 9), generator=gen)
    logits = net(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 32), ids[:, 1:].reshape(-1),  # <- smooth_off
                           label_smoothing=0.1)  # <- smooth_off
    opt.zero_grad()
    loss.backward()  # <- rms_reduce bag_back
    opt.step()  # <- nesterov
    losses.append(loss.item())
print(losses)
