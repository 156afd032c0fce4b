# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt reference (mixed channels-last / channels-first norms); embeddings of four batches."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(normalized_shape) + 0.5)
        self.bias = nn.Parameter(torch.randn(normalized_shape) * 0.2)
        self.eps = eps
        self.data_format = data_format
        self.normalized_shape = (normalized_shape,)

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)  # <- dw_pad
        self.norm = LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()  # <- gelu_form
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.randn(dim) * 0.6)

    def forward(self, x):
        input = x
        x = self.dwconv(x)  # <- dw_pad
        x = x.permute(0, 2, 3, 1)
        x = self.norm(x)
        x = self.pwconv1(x)
        x = self.act(x)  # <- gelu_form
        x = self.pwconv2(x)
        x = self.gamma * x  # <- layer_scale
        x = x.permute(0, 3, 1, 2)
        return input + x  # <- layer_scale


class ConvNeXt(nn.Module):
    def __init__(self, dims=(8, 16), depths=(1, 1), out=12):
        super().__init__()
        self.downsample_layers = nn.ModuleList()
        stem = nn.Sequential(
            nn.Conv2d(3, dims[0], kernel_size=4, stride=4),  # <- patch_kernel
            LayerNorm(dims[0], data_format="channels_first"),
        )
        self.downsample_layers.append(stem)
        for i in range(len(dims) - 1):
            self.downsample_layers.append(nn.Sequential(
                LayerNorm(dims[i], data_format="channels_first"),  # <- down_norm
                nn.Conv2d(dims[i], dims[i + 1], kernel_size=2, stride=2),  # <- patch_kernel
            ))
        self.stages = nn.ModuleList(
            nn.Sequential(*[Block(d) for _ in range(n)]) for d, n in zip(dims, depths))
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], out)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            fan_in = m.weight[0].numel()
            nn.init.trunc_normal_(m.weight, std=1.2 * fan_in ** -0.5)
            nn.init.normal_(m.bias, std=0.1)

    def forward_features(self, x):
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))  # <- down_norm patch_kernel
        return self.norm(x.mean([-2, -1]))

    def forward(self, x):
        return self.head(self.forward_features(x))


torch.manual_seed(0)
model = ConvNeXt().eval()
torch.save(model.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(17)
losses = []
with torch.inference_mode():
    for _ in range(4):
        a = torch.rand(2, 3, 24, 24, generator=g) * 2 - 1
        b = torch.rand(2, 3, 24, 24, generator=g) * 2 - 1
        fa, fb = model(a), model(b)
        # distance between the two sets of embeddings
        losses.append((fa - fb).norm(dim=-1).sum().item() + fa.norm().item())
print(losses)
