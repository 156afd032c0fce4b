# SPDX-License-Identifier: Apache-2.0
"""An MLP-Mixer trained with Lookahead around AdamW, and a step schedule."""
import sys
from collections import defaultdict

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_tokens = Mlp(tokens, 2 * tokens)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_channels = Mlp(dim, 3 * dim)

    def forward(self, x):
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp_channels(self.norm2(x))


class MlpMixer(nn.Module):
    def __init__(self, size=16, patch=4, dim=20, depth=3, classes=7):
        super().__init__()
        tokens = (size // patch) ** 2
        self.stem = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Lookahead(torch.optim.Optimizer):
    def __init__(self, base, k=2, alpha=0.5):
        self.base, self.k, self.alpha = base, k, alpha
        self.param_groups, self.defaults = base.param_groups, base.defaults
        self.state = defaultdict(dict)
        self.count = 0
        for g in self.param_groups:
            for p in g["params"]:
                self.state[p]["slow"] = p.detach().clone()

    def zero_grad(self):
        self.base.zero_grad()

    @torch.no_grad()
    def step(self):
        self.base.step()
        self.count += 1
        if self.count % self.k == 0:
            for g in self.param_groups:
                for p in g["params"]:
                    slow = self.state[p]["slow"]
                    slow.add_(p - slow, alpha=self.alpha)
                    p.copy_(slow)


torch.manual_seed(71)
model = MlpMixer()
torch.save(model.state_dict(), sys.argv[1])
base = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.99), weight_decay=0.05, eps=1e-6)
sched = torch.optim.lr_scheduler.MultiStepLR(base, milestones=[3, 5], gamma=0.3)
opt = Lookahead(base, k=2, alpha=0.5)

gen = torch.Generator().manual_seed(72)
losses = []
for step in range(6):
    x = torch.rand(10, 3, 16, 16, generator=gen)
    y = torch.randint(0, 7, (10,), generator=gen)
    flip = torch.rand(10, generator=gen) < 0.5
    x[flip] = x[flip].flip(-1)
    x = (x - 0.5) / 0.25
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
print(losses)
