# SPDX-License-Identifier: Apache-2.0
"""NeRF (Mildenhall et al., 2020): rays sampled in bins, positions and directions encoded by sines, a
network with a skip, colours composited along the ray onto white.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, POINT_BANDS, VIEW_BANDS, SAMPLES, RAYS, NEAR, FAR = 16, 4, 2, 8, 12, 2.0, 6.0


class Embedder:
    def __init__(self, bands):
        self.freq_bands = 2.0 ** torch.linspace(0.0, bands - 1, bands)

    def embed(self, inputs):
        out = [inputs]
        for freq in self.freq_bands:
            out += [torch.sin(inputs * freq), torch.cos(inputs * freq)]
        return torch.cat(out, -1)  # <- bands


class NeRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.points, self.views = Embedder(POINT_BANDS), Embedder(VIEW_BANDS)
        inputs, views = 3 + 6 * POINT_BANDS, 3 + 6 * VIEW_BANDS
        self.pts_linears = nn.ModuleList(
            [
                nn.Linear(inputs, WIDTH),
                nn.Linear(WIDTH, WIDTH),
                nn.Linear(WIDTH, WIDTH),
                nn.Linear(WIDTH + inputs, WIDTH),
            ]
        )
        self.alpha_linear = nn.Linear(WIDTH, 1)
        self.feature_linear = nn.Linear(WIDTH, WIDTH)
        self.views_linear = nn.Linear(WIDTH + views, WIDTH // 2)
        self.rgb_linear = nn.Linear(WIDTH // 2, 3)

    def forward(self, points, directions):
        input_pts = self.points.embed(points)
        input_views = self.views.embed(directions)
        h = input_pts
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))  # <- skip
            if i == 2:
                h = torch.cat([input_pts, h], -1)  # <- skip
        alpha = self.alpha_linear(h)
        h = torch.cat([self.feature_linear(h), input_views], -1)  # <- feature
        h = F.relu(self.views_linear(h))  # <- feature
        return torch.cat([self.rgb_linear(h), alpha], -1)


def raw2outputs(raw, z_vals, rays_d):
    dists = z_vals[..., 1:] - z_vals[..., :-1]
    dists = torch.cat([dists, torch.tensor([1e10]).expand(dists[..., :1].shape)], -1)  # <- last
    dists = dists * torch.norm(rays_d[..., None, :], dim=-1)  # <- metric
    rgb = torch.sigmoid(raw[..., :3])
    alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dists)  # <- metric
    ones = torch.ones((alpha.shape[0], 1))
    transmittance = torch.cumprod(torch.cat([ones, 1.0 - alpha + 1e-10], -1), -1)[:, :-1]  # <- seen
    weights = alpha * transmittance
    rgb_map = torch.sum(weights[..., None] * rgb, -2)
    acc_map = torch.sum(weights, -1)
    return rgb_map + (1.0 - acc_map[..., None])  # <- white


torch.manual_seed(139)
model = NeRF()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.999))
rng = np.random.default_rng(149)
losses = []
for step in range(4):
    rays_o = torch.from_numpy(rng.normal(0, 0.1, (RAYS, 3)).astype(np.float32))
    rays_d = torch.from_numpy(rng.normal(size=(RAYS, 3)).astype(np.float32))
    t_rand = torch.from_numpy(rng.random((RAYS, SAMPLES), dtype=np.float32))
    target = torch.from_numpy(rng.random((RAYS, 3), dtype=np.float32))
    t_vals = torch.linspace(0.0, 1.0, SAMPLES)
    z_vals = (NEAR * (1.0 - t_vals) + FAR * t_vals).expand(RAYS, SAMPLES)
    mids = 0.5 * (z_vals[..., 1:] + z_vals[..., :-1])
    upper = torch.cat([mids, z_vals[..., -1:]], -1)  # <- bins
    lower = torch.cat([z_vals[..., :1], mids], -1)  # <- bins
    z_vals = lower + (upper - lower) * t_rand  # <- bins
    points = rays_o[:, None, :] + rays_d[:, None, :] * z_vals[..., :, None]
    viewdirs = rays_d / torch.norm(rays_d, dim=-1, keepdim=True)
    raw = model(points / FAR, viewdirs[:, None].expand(points.shape))
    loss = torch.mean((raw2outputs(raw, z_vals, rays_d) - target) ** 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- rate
    new_lrate = 5e-3 * 0.1 ** ((step + 1) / 10)  # <- rate
    for param_group in optimizer.param_groups:
        param_group["lr"] = new_lrate  # <- rate
    losses.append(loss.item())
