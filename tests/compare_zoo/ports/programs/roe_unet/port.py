# SPDX-License-Identifier: Apache-2.0
"""The U-Net diffusion step with a parameter store, convolutions as unfolded matrices, and a Trainer with fit()."""
import sys

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)


class Store(nn.Module):
    """Every kernel is a matrix (out, in*kh*kw); `conv` takes the padding as left, right, top, bottom."""

    def __init__(self, path):
        super().__init__()
        self.names, self.values = {}, nn.ParameterList()
        for name, t in torch.load(path).items():
            self.names[name] = len(self.values)
            self.values.append(nn.Parameter(t.flatten(1).clone() if t.dim() == 4 else t.clone()))

    def get(self, name):
        return self.values[self.names[name]]

    def conv(self, name, x, pad=(1, 1, 1, 1), stride=1):
        kernel = self.get(name + ".weight")
        size = round((kernel.shape[1] / x.shape[1]) ** 0.5)
        left, right, top, bottom = pad
        wide = x.new_zeros(*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right)
        wide[:, :, top:top + x.shape[2], left:left + x.shape[3]] = x
        rows = (wide.shape[2] - size) // stride + 1
        columns = nn.functional.unfold(wide, size, stride=stride)
        return (kernel @ columns + self.get(name + ".bias")[:, None]).unflatten(2, (rows, -1))

    def dense(self, name, x):
        return torch.addmm(self.get(name + ".bias"), x, self.get(name + ".weight").t())

    def norm_act(self, name, x, groups=4):
        g = x.view(x.shape[0], groups, -1)
        g = (g - g.mean(2, keepdim=True)) * torch.rsqrt(g.var(2, correction=0, keepdim=True) + 1e-5)
        y = g.view_as(x) * self.get(name + ".weight")[:, None, None] + self.get(name + ".bias")[:, None, None]
        return y * y.sigmoid()


class NoisePredictor(Store):
    width = 8

    def embed(self, t):
        rates = 10000.0 ** (-torch.arange(self.width // 2) / (self.width // 2))
        angle = torch.outer(t.float(), rates)
        return torch.hstack([angle.cos(), angle.sin()])  # <- sin_cos_order

    def residual(self, name, x, swished):
        y = self.conv(name + ".conv1", self.norm_act(name + ".norm1", x))
        y = y + self.dense(name + ".time", swished)[..., None, None]
        y = self.conv(name + ".conv2", self.norm_act(name + ".norm2", y))
        has_skip = name + ".skip.weight" in self.names
        return y + (self.conv(name + ".skip", x, pad=(0, 0, 0, 0)) if has_skip else x)

    def forward(self, x, t):
        code = self.dense("time_mlp.0", self.embed(t))  # <- sin_cos_order
        code = self.dense("time_mlp.2", code * code.sigmoid())
        swished = code * code.sigmoid()
        kept = self.residual("down1", self.conv("conv_in", x), swished)
        low = self.conv("downsample.conv", kept, pad=(0, 1, 0, 1), stride=2)  # <- downsample_pad
        low = self.residual("mid", low, swished)
        high = low.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        both = torch.cat((self.conv("upconv", high), kept), 1)
        return self.conv("conv_out", self.norm_act("norm_out", self.residual("up1", both, swished)))


class Schedule:
    def __init__(self, steps=100, first=1e-3, last=0.12):
        betas = np.square(np.linspace(np.sqrt(first), np.sqrt(last), steps))  # <- beta_schedule
        log_signal = np.cumsum(np.log1p(-betas))  # <- beta_schedule
        self.signal = torch.tensor(np.exp(0.5 * log_signal), dtype=torch.float32)  # <- beta_schedule
        self.noise = torch.tensor(np.sqrt(-np.expm1(log_signal)), dtype=torch.float32)
        ratio = np.exp(log_signal) / -np.expm1(log_signal)
        self.weight = torch.tensor(np.minimum(1.0, 5.0 / ratio), dtype=torch.float32)  # <- min_snr


class Trainer:
    def __init__(self, network, schedule, optimizer):
        self.network, self.schedule, self.optimizer = network, schedule, optimizer
        self.history = []

    def training_step(self, batch):
        clean, t, noise = batch
        wide = (slice(None), None, None, None)
        noisy = self.schedule.signal[t][wide] * clean + self.schedule.noise[t][wide] * noise  # <- beta_schedule
        error = (self.network(noisy, t) - noise).square()
        return torch.einsum("bchw,b->", error, self.schedule.weight[t]) / error.numel()  # <- min_snr

    def fit(self, batches):
        for batch in batches:
            loss = self.training_step(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()  # <- coupled_decay
            self.history.append(loss.detach().item())
        return self.history


def batches(count=5):
    g = torch.Generator().manual_seed(31)
    for _ in range(count):
        clean = torch.rand(4, 3, 8, 8, generator=g).mul(2).sub(1)
        yield clean, torch.randint(0, 100, (4,), generator=g), torch.randn(4, 3, 8, 8, generator=g)


network = NoisePredictor(sys.argv[1])
optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.1)  # <- coupled_decay
trainer = Trainer(network, Schedule(), optimizer)
losses = trainer.fit(batches())
print(losses)
