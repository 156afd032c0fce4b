# SPDX-License-Identifier: Apache-2.0
"""Spiking classifier: two LIF layers with a fast-sigmoid surrogate and a leaky read-out."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
T, N_IN, N_HID, N_CLS, BATCH = 12, 14, 20, 5, 8


class FastSigmoid(torch.autograd.Function):
    slope = 5.0

    @staticmethod
    def forward(ctx, over):
        ctx.save_for_backward(over)
        return (over > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (over,) = ctx.saved_tensors
        return grad / (FastSigmoid.slope * over.abs() + 1.0) ** 2  # <- surrogate_slope


class LIF(nn.Module):
    def __init__(self, nin, nout, beta, thr):
        super().__init__()
        self.fc = nn.Linear(nin, nout)
        self.beta = nn.Parameter(torch.full((nout,), beta))
        self.thr = thr
        nn.init.normal_(self.fc.weight, std=1.3 / nin**0.5)

    def init_state(self, batch):
        return torch.zeros(batch, self.fc.out_features)

    def forward(self, x, mem):
        reset = FastSigmoid.apply(mem - self.thr).detach()  # <- reset_detached
        mem = self.beta * mem + self.fc(x) - reset * self.thr  # <- reset_detached
        return FastSigmoid.apply(mem - self.thr), mem  # <- surrogate_slope


class SpikingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([LIF(N_IN, N_HID, 0.8, 1.0), LIF(N_HID, N_HID, 0.9, 0.7)])
        self.readout = nn.Linear(N_HID, N_CLS, bias=False)
        self.kappa = 0.85

    def forward(self, spikes):
        states = [layer.init_state(spikes.size(1)) for layer in self.layers]
        out = torch.zeros(spikes.size(1), N_CLS)
        trace, counts = [], []
        for t in range(spikes.size(0)):
            x = spikes[t]
            for i, layer in enumerate(self.layers):
                x, states[i] = layer(x, states[i])
                counts.append(x.mean())
            out = self.kappa * out + (1 - self.kappa) * self.readout(x)  # <- readout_leak
            trace.append(out)
        return torch.stack(trace), torch.stack(counts)


def rate_penalty(counts, low=0.05, high=0.15):
    return (F.relu(counts - high) ** 2 + F.relu(low - counts) ** 2).sum()  # <- rate_reduction


net = SpikingNet()
torch.save(net.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(42)
opt = torch.optim.AdamW(
    [  # <- leak_rate
        {"params": [p for n, p in net.named_parameters() if "beta" not in n], "lr": 0.01},
        {
            "params": [p for n, p in net.named_parameters() if "beta" in n],
            "lr": 0.002,
        },  # <- leak_rate
    ],
    weight_decay=0.1,
    eps=1e-4,
)
losses = []
for step in range(5):
    spikes = (torch.rand(T, BATCH, N_IN, generator=gen) < 0.35).float()
    labels = torch.randint(0, N_CLS, (BATCH,), generator=gen)
    trace, counts = net(spikes)
    logits = trace.max(0).values * 6.0
    loss = F.cross_entropy(logits, labels) + 0.5 * rate_penalty(counts)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- leak_rate
    for layer in net.layers:
        layer.beta.data.clamp_(0.5, 0.95)
    losses.append(loss.item())
print(losses)
