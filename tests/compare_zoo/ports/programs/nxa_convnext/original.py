# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt V2 (global response normalisation) trained with a mean teacher, SGD and momentum."""
import copy
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class LayerNorm(nn.Module):
    """ channels_last (N, H, W, C) or channels_first (N, C, H, W) """
    def __init__(self, normalized_shape, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps, self.data_format = eps, data_format

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class GRN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(1, 1, 1, dim) * 0.5)
        self.beta = nn.Parameter(torch.zeros(1, 1, 1, dim))

    def forward(self, x):
        Gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        Nx = Gx / (Gx.mean(dim=-1, keepdim=True) + 1e-6)  # <- grn_mean
        return self.gamma * (x * Nx) + self.beta + x  # <- grn_mean


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=5, padding=2, groups=dim)
        self.norm = LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 3 * dim)
        self.act = nn.GELU()
        self.grn = GRN(3 * dim)
        self.pwconv2 = nn.Linear(3 * dim, dim)

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)  # <- kernel_axes
        y = self.grn(self.act(self.pwconv1(self.norm(y))))
        return x + self.pwconv2(y).permute(0, 3, 1, 2)


class ConvNeXtV2(nn.Module):
    def __init__(self, num_classes=4, dims=(10, 16)):
        super().__init__()
        self.downsample_layers = nn.ModuleList([
            nn.Sequential(nn.Conv2d(3, dims[0], 2, stride=2),
                          LayerNorm(dims[0], data_format="channels_first")),
            nn.Sequential(LayerNorm(dims[0], data_format="channels_first"),
                          nn.Conv2d(dims[0], dims[1], 2, stride=2))])
        self.stages = nn.ModuleList([Block(dim) for dim in dims])
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], num_classes)

    def forward(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))
        x = self.norm(x.mean([-2, -1]))  # <- pool_order
        return self.head(x)


class ModelEma:
    def __init__(self, model, decay=0.95):
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))  # <- ema_warmup
        for slow, fast in zip(self.module.parameters(), model.parameters()):
            slow.copy_(d * slow + (1 - d) * fast)  # <- ema_warmup


torch.manual_seed(0)
model = ConvNeXtV2()
torch.save(model.state_dict(), sys.argv[1])
ema = ModelEma(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9,
                            weight_decay=1e-3, nesterov=True)  # <- nesterov
g = torch.Generator().manual_seed(17)
losses = []
for step in range(5):
    images, labels = torch.randn(5, 3, 12, 12, generator=g), torch.randint(4, (5,), generator=g)
    logits = model(images)
    with torch.no_grad():
        calm = ema.module(images.flip(-1))  # <- ema_warmup
    ramp = min(1.0, (step + 1) / 3)
    loss = F.cross_entropy(logits, labels) + ramp * F.mse_loss(logits, calm)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    ema.update(model)
    losses.append(loss.item())
print(losses)
