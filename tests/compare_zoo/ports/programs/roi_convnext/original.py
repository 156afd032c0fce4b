# SPDX-License-Identifier: Apache-2.0
"""Train a tiny ConvNeXt (NCHW, 1x1 convolutions) with mixup, AdamW and gradient clipping."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of an NCHW tensor."""

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + self.eps)  # <- ln_eps
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim, ls_init=0.3):
        super().__init__()
        self.conv_dw = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = LayerNorm2d(dim, eps=1e-6)  # <- ln_eps
        self.fc1 = nn.Conv2d(dim, 4 * dim, 1)
        self.act = nn.GELU()
        self.fc2 = nn.Conv2d(4 * dim, dim, 1)
        self.gamma = nn.Parameter(ls_init * torch.ones(dim))

    def forward(self, x):
        shortcut = x
        x = self.norm(self.conv_dw(x))  # <- ln_eps
        x = self.fc2(self.act(self.fc1(x)))
        x = x * self.gamma.reshape(1, -1, 1, 1)
        return shortcut + x


class ConvNeXt(nn.Module):
    def __init__(self, dims=(12, 24), num_classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, stride=4), LayerNorm2d(dims[0], eps=1e-6))
        self.stage0 = ConvNeXtBlock(dims[0])
        self.downsample = nn.Sequential(LayerNorm2d(dims[0], eps=1e-6), nn.Conv2d(dims[0], dims[1], 2, stride=2))
        self.stage1 = ConvNeXtBlock(dims[1])
        self.norm = nn.LayerNorm(dims[1], eps=1e-6)
        self.head = nn.Linear(dims[1], num_classes)
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(m.weight, std=0.02 if isinstance(m, nn.Conv2d) else 0.1)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.stage0(self.stem(x))
        x = self.stage1(self.downsample(x))
        x = x.mean(dim=(2, 3))  # <- head_norm
        return self.head(self.norm(x))  # <- head_norm


def mixup(images, targets, lam, num_classes=6):
    mixed = lam * images + (1.0 - lam) * images.flip(0)
    one_hot = F.one_hot(targets, num_classes).float()
    soft = lam * one_hot + (1.0 - lam) * one_hot.flip(0)  # <- mixup_target
    return mixed, soft


def soft_target_cross_entropy(logits, soft):
    return torch.sum(-soft * F.log_softmax(logits, dim=-1), dim=-1).mean()  # <- mixup_target


def optim_groups(model, weight_decay):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if p.ndim <= 1 or name.endswith(".bias"):  # <- decay_one_dim
            no_decay.append(p)
        else:
            decay.append(p)
    return [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": weight_decay}]  # <- decay_one_dim


model = ConvNeXt()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(optim_groups(model, 0.3), lr=6e-3, betas=(0.9, 0.99), eps=1e-6)  # <- decay_one_dim
gen = torch.Generator().manual_seed(21)

losses = []
for step in range(5):
    images = torch.rand(6, 3, 32, 32, generator=gen)
    targets = torch.randint(0, 6, (6,), generator=gen)
    lam = 0.55 + 0.4 * torch.rand((), generator=gen).item()
    images, soft = mixup((images - 0.5) / 0.25, targets, lam)
    loss = soft_target_cross_entropy(model(images), soft)  # <- mixup_target
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_kind
    optimizer.step()  # <- decay_one_dim
    losses.append(loss.item())
print(losses)
