# SPDX-License-Identifier: Apache-2.0
"""Blob GAN in functional style: generator gradient first, one discriminator pass over real and fake."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def convert(path):
    sd = torch.load(path)
    g = {
        "proj": sd["G.main.0.weight"].flatten(1).clone(),       # (nz, 16*4*4): a 1x1 input makes this a matmul
        "n1": torch.stack([sd["G.main.1.weight"], sd["G.main.1.bias"]]),
        "up": sd["G.main.3.weight"].clone(),
        "n2": torch.stack([sd["G.main.4.weight"], sd["G.main.4.bias"]]),
        # stride-1 transposed convolution == plain convolution with flipped kernel
        "rgb": sd["G.main.6.weight"].flip(2, 3).transpose(0, 1).contiguous(),
        "rgb_b": sd["G.main.6.bias"].clone(),
    }
    d = {
        "a": sd["D.main.0.weight"].clone(), "a_b": sd["D.main.0.bias"].clone(),
        "b": sd["D.main.2.weight"].clone(), "b_b": sd["D.main.2.bias"].clone(),
        "head": sd["D.main.5.weight"].view(16, 2, 2).clone(), "head_b": sd["D.main.5.bias"].clone(),
    }
    return g, d


def batch_stat_norm(x, gb, eps=1e-5):
    mu = x.mean((0, 2, 3), keepdim=True)
    xc = x - mu
    var = xc.square().mean((0, 2, 3), keepdim=True)
    return xc * torch.rsqrt(var + eps) * gb[0].view(1, -1, 1, 1) + gb[1].view(1, -1, 1, 1)


def generate(g, z):
    h = (z @ g["proj"]).unflatten(1, (16, 4, 4))
    h = batch_stat_norm(h, g["n1"]).clamp_min(0)
    h = F.conv_transpose2d(h, g["up"], stride=2, padding=1)
    h = batch_stat_norm(h, g["n2"]).clamp_min(0)
    return torch.tanh(F.conv2d(h, g["rgb"], g["rgb_b"], padding=1))


def score(d, x):
    h = F.conv2d(x, d["a"], d["a_b"], stride=2, padding=1)
    h = torch.maximum(h, 0.2 * h)
    h = F.conv2d(h, d["b"], d["b_b"], stride=2, padding=1)
    h = torch.maximum(h, 0.2 * h)
    return torch.einsum("nchw,chw->n", h, d["head"]) + d["head_b"]


class Adam:
    """Adam over a dictionary; returns a new dictionary every time."""

    def __init__(self, params, lr, b1, b2, eps=1e-8):
        self.lr, self.b1, self.b2, self.eps, self.t = lr, b1, b2, eps, 0
        self.m = {k: torch.zeros_like(v) for k, v in params.items()}
        self.v = {k: torch.zeros_like(v) for k, v in params.items()}

    def __call__(self, params, grads):
        self.t += 1
        s1, s2 = 1 - self.b1 ** self.t, math.sqrt(1 - self.b2 ** self.t)
        new = {}
        for k in params:
            self.m[k] = self.b1 * self.m[k] + (1 - self.b1) * grads[k]
            self.v[k] = self.b2 * self.v[k] + (1 - self.b2) * grads[k] ** 2
            new[k] = params[k] - (self.lr / s1) * self.m[k] / (self.v[k].sqrt() / s2 + self.eps)
        return new


def stream(n_steps, batch, nz):
    rng = torch.Generator().manual_seed(77)
    axis = torch.linspace(-1, 1, 8)
    for _ in range(n_steps):
        centre = torch.rand(batch, 2, generator=rng) - 0.5
        noise = torch.randn(batch, nz, generator=rng)
        dx = (axis[None, :] - centre[:, :1]) ** 2      # along width
        dy = (axis[None, :] - centre[:, 1:]) ** 2      # along height
        yield (2 * torch.exp(-4 * (dx[:, None, :] + dy[:, :, None])) - 1).unsqueeze(1), noise


def train(path):
    g, d = convert(path)
    adam_g, adam_d = Adam(g, 2e-3, 0.5, 0.999), Adam(d, 2e-3, 0.5, 0.999)
    history, norms = [], []
    for real, z in stream(5, 8, 12):
        gv = {k: v.detach().requires_grad_() for k, v in g.items()}
        fake = generate(gv, z)
        g_loss = F.softplus(-score(d, fake)).mean()
        g_grad = dict(zip(gv, torch.autograd.grad(g_loss, list(gv.values()))))

        dv = {k: v.detach().requires_grad_() for k, v in d.items()}
        logit = score(dv, torch.cat([fake.detach(), real]))
        lf, lr = logit.chunk(2)
        # smoothed target: softplus(x) - 0.9 x
        d_loss = (F.softplus(lf).sum() + (F.softplus(lr) - 0.9 * lr).sum()) / len(real)
        d_grad = dict(zip(dv, torch.autograd.grad(d_loss, list(dv.values()))))

        norms.append(sum(float(x.norm()) for x in d_grad.values()))
        g, d = adam_g(g, g_grad), adam_d(d, d_grad)
        history.append(g_loss.item() + d_loss.item())
    return history


losses = train(sys.argv[1])
print(losses)
