# SPDX-License-Identifier: Apache-2.0
"""Second-order MAML on sinusoids: torch.func.functional_call inside a loop over tasks, learnt inner rates."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.set_num_threads(1)
torch.manual_seed(41)

INNER_STEPS, META_BATCH, SHOTS, META_STEPS = 2, 4, 6, 5


class Regressor(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.LayerNorm(hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


class MAML(nn.Module):
    def __init__(self):
        super().__init__()
        self.learner = Regressor()
        self.inner_lr = nn.ParameterDict({
            n.replace(".", "_"): nn.Parameter(torch.tensor(0.05)) for n, _ in self.learner.named_parameters()})

    def adapt(self, x, y):
        fast = dict(self.learner.named_parameters())
        for _ in range(INNER_STEPS):
            loss = F.mse_loss(functional_call(self.learner, fast, (x,)), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {n: p - self.inner_lr[n.replace(".", "_")] * g for (n, p), g in zip(fast.items(), grads)}
        return fast

    def forward(self, task):
        xs, ys, xq, yq = task
        return F.mse_loss(functional_call(self.learner, self.adapt(xs, ys), (xq,)), yq)


def sample_task(gen):
    amp = 0.5 + 2.0 * torch.rand(1, generator=gen)
    phase = math.pi * torch.rand(1, generator=gen)
    xs = 6 * torch.rand(SHOTS, 1, generator=gen) - 3
    xq = 6 * torch.rand(SHOTS, 1, generator=gen) - 3
    return xs, amp * torch.sin(xs + phase), xq, amp * torch.sin(xq + phase)


maml = MAML()
torch.save(maml.state_dict(), sys.argv[1])
meta_opt = torch.optim.Adam(maml.parameters(), lr=1e-3)
gen = torch.Generator().manual_seed(410)

losses = []
for step in range(META_STEPS):
    meta_opt.zero_grad()
    meta_loss = 0.0
    for _ in range(META_BATCH):
        meta_loss = meta_loss + maml(sample_task(gen))
    meta_loss = meta_loss / META_BATCH
    meta_loss.backward()
    meta_opt.step()
    losses.append(meta_loss.item())
print(losses)
