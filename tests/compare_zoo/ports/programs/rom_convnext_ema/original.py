# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt-style image classifier: SGD with Nesterov momentum, cosine schedule, EMA of the weights."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

STEPS, BATCH, CLASSES, SIZE = 5, 8, 6, 16
BASE_LR, MIN_LR, WEIGHT_DECAY, EMA_DECAY = 0.08, 0.002, 0.05, 0.8


class LayerNorm(nn.Module):
    """Layer norm over the channels, for channels-last or channels-first maps."""

    def __init__(self, dim, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps, self.data_format = eps, data_format

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)  # <- norm_axes
        u = x.mean(1, keepdim=True)  # <- norm_axes
        s = (x - u).pow(2).mean(1, keepdim=True)  # <- norm_axes
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim, layer_scale=0.4):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)
        self.norm = LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 3 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(3 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))
        self.drop_path = nn.Identity()

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.norm(y)  # <- norm_axes
        y = self.act(self.pwconv1(y))
        y = self.gamma * self.pwconv2(y)
        return x + self.drop_path(y.permute(0, 3, 1, 2))


class ConvNeXt(nn.Module):
    def __init__(self, dims=(8, 16), depths=(1, 2)):
        super().__init__()
        self.downsample_layers = nn.ModuleList([
            nn.Sequential(nn.Conv2d(3, dims[0], 4, 4), LayerNorm(dims[0], data_format="channels_first")),
            nn.Sequential(LayerNorm(dims[0], data_format="channels_first"), nn.Conv2d(dims[0], dims[1], 2, 2)),
        ])
        self.stages = nn.ModuleList([nn.Sequential(*[Block(d) for _ in range(n)]) for d, n in zip(dims, depths)])
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], CLASSES)

    def forward(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))
        return self.head(self.norm(x.mean([-2, -1])))


class ModelEma:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)  # <- ema_before_step


def param_groups(model):
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]  # <- decay_on_all
    return [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]  # <- decay_on_all


torch.manual_seed(11)
model = ConvNeXt()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(5)
images = torch.randn(STEPS + 1, BATCH, 3, SIZE, SIZE, generator=gen)
labels = torch.randint(0, CLASSES, (STEPS + 1, BATCH), generator=gen)

criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smooth_others
optimizer = torch.optim.SGD(param_groups(model), lr=BASE_LR, momentum=0.9, nesterov=True)  # <- decay_on_all
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS, eta_min=MIN_LR)  # <- cosine_late
ema = ModelEma(model, EMA_DECAY)

losses = []
for step in range(STEPS):
    model.train()
    logits = model(images[step])
    loss = criterion(logits, labels[step])  # <- smooth_others
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # <- decay_on_all cosine_late
    scheduler.step()  # <- cosine_late
    ema.update(model)  # <- ema_before_step
    losses.append(loss.item())

with torch.no_grad():
    losses.append(criterion(ema.module(images[STEPS]), labels[STEPS]).item())
print(losses)
