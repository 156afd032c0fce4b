# SPDX-License-Identifier: Apache-2.0
"""A small ConvNeXt (NCHW) trained with label smoothing, Nesterov SGD and an EMA teacher."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

MEAN = torch.tensor([0.485, 0.456, 0.306]).view(1, 3, 1, 1)  # <- channel_order
STD = torch.tensor([0.229, 0.264, 0.325]).view(1, 3, 1, 1)  # <- channel_order


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = LayerNorm2d(dim, eps=1e-6)
        self.pwconv1 = nn.Conv2d(dim, 4 * dim, kernel_size=1)
        self.act = nn.GELU()
        self.pwconv2 = nn.Conv2d(4 * dim, dim, kernel_size=1)
        self.gamma = nn.Parameter(0.5 * torch.ones(dim, 1, 1))

    def forward(self, x):
        y = self.pwconv2(self.act(self.pwconv1(self.norm(self.dwconv(x)))))
        return x + self.gamma * y


class ConvNeXt(nn.Module):
    def __init__(self, dims=(16, 32), num_classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, stride=4), LayerNorm2d(dims[0], eps=1e-6))
        self.stage1 = Block(dims[0])
        self.down = nn.Sequential(LayerNorm2d(dims[0], eps=1e-6), nn.Conv2d(dims[0], dims[1], 2, stride=2))
        self.stage2 = Block(dims[1])
        self.norm = nn.LayerNorm(dims[1], eps=1e-6)
        self.head = nn.Linear(dims[1], num_classes)

    def forward(self, x):
        x = self.stage1(self.stem(x))
        x = self.stage2(self.down(x))
        pooled = x.mean([-2, -1])  # <- norm_before_pool
        return self.head(self.norm(pooled))  # <- norm_before_pool


class ModelEma:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ema_p, p in zip(self.module.parameters(), model.parameters()):
            ema_p.copy_(self.decay * ema_p + (1.0 - self.decay) * p)


torch.manual_seed(3)
model = ConvNeXt()
torch.save(model.state_dict(), sys.argv[1])
ema = ModelEma(model, 0.8)

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)  # <- velocity_form
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
criterion = nn.CrossEntropyLoss(label_smoothing=0.2)  # <- smoothing_spread

gen = torch.Generator().manual_seed(99)
images = torch.randint(0, 256, (40, 3, 24, 24), generator=gen, dtype=torch.uint8)
labels = torch.randint(0, 10, (40,), generator=gen)

losses = []
for step in range(5):
    x = images[8 * step: 8 * step + 8].float() / 255.0
    x = (x - MEAN) / STD  # <- channel_order
    y = labels[8 * step: 8 * step + 8]
    logits = model(x)
    with torch.no_grad():
        soft = ema.module(x).softmax(dim=1)
    distill = F.kl_div(logits.log_softmax(dim=1), soft, reduction="batchmean")
    loss = criterion(logits, y) + 2.0 * distill  # <- smoothing_spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- velocity_form ema_before_step
    ema.update(model)  # <- ema_before_step
    scheduler.step()
    losses.append(loss.item())
print(losses)
