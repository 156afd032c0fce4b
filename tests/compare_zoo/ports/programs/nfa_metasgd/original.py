# SPDX-License-Identifier: Apache-2.0
"""MAML on sine waves with learnt per-parameter inner learning rates (Meta-SGD), two inner steps."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.set_num_threads(1)


class SineNet(nn.Module):
    def __init__(self, h=16):
        super().__init__()
        self.fc1 = nn.Linear(1, h)
        self.fc2 = nn.Linear(h, h)
        self.fc3 = nn.Linear(h, 1)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


class MetaLearner(nn.Module):
    def __init__(self, inner_steps=2):
        super().__init__()
        self.net = SineNet()
        self.inner_steps = inner_steps
        self.rates = nn.ParameterDict({
            n.replace(".", "_"): nn.Parameter(torch.full_like(p, 0.02) + 0.01 * torch.rand_like(p))
            for n, p in self.net.named_parameters()})

    def adapt(self, x, y):
        fast = dict(self.net.named_parameters())
        for _ in range(self.inner_steps):  # <- few
            loss = F.mse_loss(functional_call(self.net, fast, (x,)), y)  # <- wide
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)  # <- detached
            fast = {n: p - self.rates[n.replace(".", "_")] * g  # <- detached few
                    for (n, p), g in zip(fast.items(), grads)}
        return fast  # <- few

    def forward(self, xs, ys, xq, yq):
        return F.mse_loss(functional_call(self.net, self.adapt(xs, ys), (xq,)), yq)  # <- few wide


def sample_task(gen, k=5):
    amp = 0.5 + 2 * torch.rand(1, generator=gen)
    phase = 3.14 * torch.rand(1, generator=gen)
    x = 10 * torch.rand(2 * k, 1, generator=gen) - 5
    y = amp * torch.sin(x + phase)
    return x[:k], y[:k], x[k:], y[k:]


torch.manual_seed(0)
meta = MetaLearner()
torch.save(meta.state_dict(), sys.argv[1])
opt = torch.optim.Adam([
    {"params": meta.net.parameters(), "lr": 5e-3},
    {"params": meta.rates.parameters(), "lr": 1e-3},
], eps=1e-4)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.8)  # <- decay_early

gen = torch.Generator().manual_seed(9)
losses = []
for it in range(4):
    opt.zero_grad()
    total = 0.0
    for _ in range(4):
        loss = meta(*sample_task(gen)) / 4
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_value_(meta.parameters(), 0.5)  # <- clip_side
    opt.step()  # <- decay_early
    sched.step()  # <- decay_early
    losses.append(total)

print(losses)
