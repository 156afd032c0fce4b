# SPDX-License-Identifier: Apache-2.0
"""Denoising UNet with a sub-pixel upsampler, an own group norm and an own Adam over one flat vector."""
import math
import sys

import torch
import torch.nn.functional as F
from torch.nn import Conv2d, Linear, Module, ModuleDict, Parameter

torch.set_num_threads(1)

N_TIMES, WIDTH, EMB = 50, 8, 16


def timestep_features(steps, width):
    k = width // 2
    rates = torch.pow(10000.0, -torch.linspace(0.0, 1.0, k))
    phase = torch.outer(steps.float(), rates)
    return torch.cat([phase.sin(), phase.cos()], 1)  # <- cos_first


class Norm(Module):
    """Group norm as a reshape, statistics, and an affine map."""

    def __init__(self, channels):
        super().__init__()
        self.scale, self.shift = Parameter(torch.empty(channels)), Parameter(torch.empty(channels))

    def forward(self, x):
        b, c, h, w = x.shape
        grouped = x.reshape(b, 4, -1)
        centred = grouped - grouped.mean(2, keepdim=True)
        var = grouped.var(2, unbiased=False, keepdim=True)  # <- unbiased_var
        x = (centred / torch.sqrt(var + 1e-5)).view(b, c, h, w)  # <- unbiased_var
        return x * self.scale.view(1, c, 1, 1) + self.shift.view(1, c, 1, 1)


def res_block(a, b):
    parts = {"n1": Norm(a), "c1": Conv2d(a, b, 3, padding="same"), "t": Linear(EMB, b),
             "n2": Norm(b), "c2": Conv2d(b, b, 3, padding="same")}
    if a != b:
        parts["short"] = Conv2d(a, b, 1)
    return ModuleDict(parts)


def run_block(m, x, emb):
    shift = m["t"](emb * emb.sigmoid())
    y = m["n1"](x)  # <- unbiased_var
    y = m["c1"](y * y.sigmoid()) + shift.unsqueeze(-1).unsqueeze(-1)
    y = m["n2"](y)  # <- unbiased_var
    y = m["c2"](y * y.sigmoid())
    return y + (m["short"](x) if "short" in m else x)


class SubPixelUp(Module):
    """Doubles the size: a product to 4 sub-pixels each, then a shuffle (a 2x2 transposed convolution of stride 2)."""

    def __init__(self, a, b):
        super().__init__()
        self.kernel, self.bias = Parameter(torch.empty(4 * b, a)), Parameter(torch.empty(b))

    def forward(self, x):
        sub = torch.einsum("oc,bchw->bohw", self.kernel, x)
        return F.pixel_shuffle(sub, 2) + self.bias[:, None, None]


class Denoiser(Module):
    def __init__(self):
        super().__init__()
        w = WIDTH
        self.emb1, self.emb2 = Linear(EMB, EMB), Linear(EMB, EMB)
        self.first, self.last = Conv2d(1, w, 3, padding=1), Conv2d(w, 1, 1)
        self.shrink, self.grow = Conv2d(w, 2 * w, 3, stride=2, padding=1), SubPixelUp(2 * w, w)
        self.enc, self.bottom, self.dec = res_block(w, w), res_block(2 * w, 2 * w), res_block(2 * w, w)

    def forward(self, x, steps):
        emb = timestep_features(steps, EMB)  # <- cos_first
        emb = self.emb2(F.silu(self.emb1(emb)))
        high = run_block(self.enc, self.first(x), emb)
        low = run_block(self.bottom, self.shrink(high), emb)
        both = torch.cat((self.grow(low), high), 1)  # <- skip_order
        return self.last(run_block(self.dec, both, emb))


def load_original(net, path):
    sub = {"norm1.weight": "n1.scale", "norm1.bias": "n1.shift", "norm2.weight": "n2.scale", "norm2.bias": "n2.shift",
           "conv1": "c1", "conv2": "c2", ".time.": ".t.", "skip": "short"}
    top = {"time_mlp.1.": "emb1.", "time_mlp.3.": "emb2.", "stem.": "first.", "out.": "last.", "pool.": "shrink.",
           "up.": "grow.", "down.": "enc.", "mid.": "bottom."}
    new = {}
    for name, value in torch.load(path).items():
        for table in (top, sub):
            for old, short in table.items():
                if (name.startswith(old) if table is top else old in name):
                    name = name.replace(old, short)
        if name == "grow.weight":
            name, value = "grow.kernel", value.permute(1, 2, 3, 0).reshape(-1, value.shape[0])
        new[name] = value
    net.load_state_dict(new)


def signal_levels():
    f = lambda u: math.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
    level, out = 1.0, []
    for i in range(N_TIMES):
        level *= 1 - min(max(1 - f((i + 1) / N_TIMES) / f(i / N_TIMES), 0.0), 0.999)
        out.append(level)
    return torch.tensor(out)


def weighted_loss(net, clean, steps, eps, levels):
    a = levels.index_select(0, steps)
    noisy = torch.einsum("b,bchw->bchw", a.sqrt(), clean) + torch.einsum("b,bchw->bchw", (1 - a).sqrt(), eps)
    err = (net(noisy, steps) - eps).square().flatten(1).mean(1)
    ratio = a / (1 - a)
    share = torch.minimum(ratio, torch.full_like(ratio, 5.0)) / ratio  # <- snr_for_v
    return torch.dot(share, err) / len(err)  # <- snr_for_v


net = Denoiser()
load_original(net, sys.argv[1])
levels = signal_levels()
rng = torch.Generator().manual_seed(17)
clean = torch.randn(5, 6, 1, 8, 8, generator=rng).tanh()
when = torch.randint(0, N_TIMES, (5, 6), generator=rng)
added = torch.randn(5, 6, 1, 8, 8, generator=rng)

weights = list(net.parameters())
m = v = torch.zeros(sum(w.numel() for w in weights))
losses = []
for n, (x, t, e) in enumerate(zip(clean, when, added), start=1):
    value = weighted_loss(net, x, t, e, levels)  # <- snr_for_v
    flat = torch.cat([d.reshape(-1) for d in torch.autograd.grad(value, weights)])
    flat = flat * torch.clamp(1.0 / (flat.norm() + 1e-6), max=1.0)
    m, v = 0.9 * m + 0.1 * flat, 0.99 * v + 0.01 * flat * flat
    m_hat, v_hat = m / (1 - 0.9**n), v / (1 - 0.99**n)  # <- bias_correction
    update = 2e-3 * m_hat / (v_hat.sqrt() + 1e-6)  # <- bias_correction
    with torch.no_grad():
        for w, d in zip(weights, update.split([w.numel() for w in weights])):
            w.sub_(d.view_as(w))  # <- bias_correction
    losses.append(value.item())
print(losses)
