# SPDX-License-Identifier: Apache-2.0
"""Radiance field fitting, sample axis first, transmittance by accumulated optical depth."""

import math
import sys

import torch

L, SAMPLES, RAYS = 4, 9, 16


def fourier(x):
    bands = torch.tensor([2.0**k for k in range(L)])  # <- freq_table
    ang = x.unsqueeze(-2) * bands.unsqueeze(-1)  # <- freq_table
    waves = torch.stack([ang.sin(), ang.cos()], dim=-2)
    return torch.cat([x, waves.flatten(-3)], dim=-1)


class Field(torch.nn.Module):
    """Skip connection as two separate matrices, colour and density as two heads of one matrix."""

    def __init__(self, sd):
        super().__init__()
        par = torch.nn.Parameter
        n_in = sd["pts_linears.0.weight"].shape[1]
        late = sd["pts_linears.2.weight"]
        self.first = par(sd["pts_linears.0.weight"].T.clone())
        self.second = par(sd["pts_linears.1.weight"].T.clone())
        self.from_input = par(late[:, :n_in].T.clone())
        self.from_hidden = par(late[:, n_in:].T.clone())
        self.biases = par(torch.stack([sd[f"pts_linears.{i}.bias"] for i in range(3)]))
        self.head = par(torch.cat([sd["alpha_linear.weight"], sd["rgb_linear.weight"]]).T.clone())
        self.head_bias = par(torch.cat([sd["alpha_linear.bias"], sd["rgb_linear.bias"]]))

    def forward(self, e):
        h = (e @ self.first + self.biases[0]).clamp_min(0)
        h = (h @ self.second + self.biases[1]).clamp_min(0)
        h = (e @ self.from_input + h @ self.from_hidden + self.biases[2]).clamp_min(0)
        out = h @ self.head + self.head_bias
        return out[..., 0], out[..., 1:]


def composite(sigma, colour, depth, direction):
    """sigma (S, R), colour (S, R, 3), depth (S,), direction (R, 3)."""
    speed = direction.square().sum(-1).sqrt()  # <- ray_length
    gaps = torch.cat([depth.diff(), depth.new_tensor([1e10])])
    tau = sigma.clamp_min(0) * gaps[:, None] * speed  # <- density_relu ray_length
    depth_to = torch.cat([torch.zeros_like(tau[:1]), tau[:-1].cumsum(0)])  # <- inclusive_trans
    lit = torch.exp(-depth_to)  # <- inclusive_trans
    w = lit * -torch.expm1(-tau)  # <- inclusive_trans density_relu
    seen = torch.einsum("sr,src->rc", w, colour.sigmoid())
    return seen + 1.0 - w.sum(0).unsqueeze(-1)  # <- white_background


class HandAdam:
    def __init__(self, params, lr):
        self.params, self.lr, self.t = list(params), lr, 0
        self.state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.params]

    @torch.no_grad()
    def update(self, grads):
        self.t += 1
        scale = math.sqrt(1 - 0.999**self.t)
        for p, g, (m, s) in zip(self.params, grads, self.state):
            m += 0.1 * (g - m)
            s += 0.001 * (g * g - s)
            p -= self.lr / (1 - 0.9**self.t) * m / (s.sqrt() / scale + 1e-8)


field = Field(torch.load(sys.argv[1], weights_only=True))
opt = HandAdam(field.parameters(), 1e-2)

g = torch.Generator().manual_seed(9)
o = torch.randn(4, RAYS, 3, generator=g) * 0.3
d = torch.randn(4, RAYS, 3, generator=g)
rgb = torch.rand(4, RAYS, 3, generator=g)
depth = 0.2 + 1.6 * torch.arange(SAMPLES) / (SAMPLES - 1)

losses = []
for i in range(4):
    where = o[i] + depth.view(-1, 1, 1) * d[i]
    sigma, colour = field(fourier(where))
    residual = composite(sigma, colour, depth, d[i]) - rgb[i]
    loss = residual.square().sum() / residual.numel()
    opt.update(torch.autograd.grad(loss, opt.params))
    losses.append(loss.item())
print(losses)
