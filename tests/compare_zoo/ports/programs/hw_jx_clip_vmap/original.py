# SPDX-License-Identifier: Apache-2.0
"""Contrastive image-text training (CLIP-like) with a momentum image tower as a second target."""
import copy
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)

BATCH, VOCAB, WORDS, EMBED, MOMENTUM = 10, 30, 6, 16, 0.8


class ImageTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=1, padding=1)
        self.proj = nn.Linear(16 * 4 * 4, EMBED, bias=False)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return F.normalize(self.proj(x.flatten(1)), dim=-1)


class TextTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, 20, mode="mean", padding_idx=0)
        self.fc = nn.Linear(20, 24)
        self.proj = nn.Linear(24, EMBED, bias=False)

    def forward(self, ids):
        x = self.bag(ids)
        return F.normalize(self.proj(torch.tanh(self.fc(x))), dim=-1)


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = ImageTower(), TextTower()
        self.logit_scale = nn.Parameter(torch.tensor(np.log(1 / 0.07), dtype=torch.float32))

    def forward(self, image, text):
        scale = self.logit_scale.exp()
        return self.image(image), self.text(text), scale


def pairs(rng):
    kind = rng.randint(0, 5, size=BATCH)
    image = rng.randn(BATCH, 3, 8, 8) * 0.5 + np.sin(kind)[:, None, None, None]
    text = rng.randint(1, 6, size=(BATCH, WORDS)) + 5 * kind[:, None]
    text[np.arange(WORDS)[None] >= rng.randint(2, WORDS + 1, size=BATCH)[:, None]] = 0
    return torch.tensor(image, dtype=torch.float32), torch.tensor(text)


model = CLIP()
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
teacher = copy.deepcopy(model.image).requires_grad_(False)
optimizer = torch.optim.Adam([
    {"params": model.image.parameters()},
    {"params": model.text.parameters()},
    {"params": [model.logit_scale], "lr": 2e-2},
], lr=3e-3)
rng = np.random.RandomState(77)
labels = torch.arange(BATCH)
losses = []
for step in range(4):
    image, text = pairs(rng)
    zi, zt, scale = model(image, text)
    logits = scale * zi @ zt.t()
    contrastive = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
    with torch.no_grad():
        zm = teacher(image)
    distil = (2 - 2 * (zm * zt).sum(dim=-1)).mean()
    loss = contrastive + 0.25 * distil
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), model.image.parameters()):
            slow.mul_(MOMENTUM).add_(fast, alpha=1 - MOMENTUM)
    losses.append(loss.item())
print(losses)
