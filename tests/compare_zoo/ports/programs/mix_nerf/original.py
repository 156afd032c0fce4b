# SPDX-License-Identifier: Apache-2.0
"""A little NeRF: positional encoding, an MLP with a skip and volume rendering (compiled MLP)."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class Embedder:
    def __init__(self, num_freqs, include_input=True):
        self.freq_bands = 2.0 ** torch.linspace(0.0, num_freqs - 1, num_freqs)  # <- freq_table
        self.include_input = include_input

    def embed(self, x):
        out = [x] if self.include_input else []
        for freq in self.freq_bands:
            for fn in (torch.sin, torch.cos):
                out.append(fn(x * freq))  # <- freq_table
        return torch.cat(out, -1)


class NeRF(nn.Module):
    def __init__(self, input_ch, W=24, D=3, skips=(1,)):
        super().__init__()
        self.skips = skips
        self.pts_linears = nn.ModuleList(
            [nn.Linear(input_ch, W)]
            + [nn.Linear(W + input_ch if i in skips else W, W) for i in range(D - 1)]
        )
        self.alpha_linear = nn.Linear(W, 1)
        self.rgb_linear = nn.Linear(W, 3)

    def forward(self, input_pts):
        h = input_pts
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([input_pts, h], -1)
        return torch.cat([self.rgb_linear(h), self.alpha_linear(h)], -1)


def raw2outputs(raw, z_vals, rays_d):
    dists = z_vals[..., 1:] - z_vals[..., :-1]
    dists = torch.cat([dists, torch.full_like(dists[..., :1], 1e10)], -1)
    dists = dists * torch.norm(rays_d[..., None, :], dim=-1)  # <- ray_length
    rgb = torch.sigmoid(raw[..., :3])
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)  # <- density_relu
    ones = torch.ones((alpha.shape[0], 1))
    trans = torch.cumprod(torch.cat([ones, 1.0 - alpha], -1), -1)[:, :-1]  # <- inclusive_trans
    weights = alpha * trans  # <- inclusive_trans
    rgb_map = torch.sum(weights[..., None] * rgb, -2)
    acc_map = torch.sum(weights, -1)
    return rgb_map + (1.0 - acc_map[..., None])  # <- white_background


embedder = Embedder(4)
torch.manual_seed(1)
net = NeRF(3 + 3 * 2 * 4)
nn.init.constant_(net.alpha_linear.bias, 0.3)
nn.init.normal_(net.alpha_linear.weight, std=0.5)
torch.save(net.state_dict(), sys.argv[1])
query = torch.compile(net, backend="aot_eager")

g = torch.Generator().manual_seed(9)
origins = torch.randn(4, 16, 3, generator=g) * 0.3
dirs = torch.randn(4, 16, 3, generator=g)
colours = torch.rand(4, 16, 3, generator=g)
t_vals = torch.linspace(0.0, 1.0, 9)
near, far = 0.2, 1.8
z = (near * (1.0 - t_vals) + far * t_vals).expand(16, 9)

optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, betas=(0.9, 0.999))
losses = []
for rays_o, rays_d, target in zip(origins, dirs, colours):
    pts = rays_o[:, None, :] + rays_d[:, None, :] * z[:, :, None]
    rgb = raw2outputs(query(embedder.embed(pts)), z, rays_d)
    loss = torch.mean((rgb - target) ** 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
