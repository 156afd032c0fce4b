# SPDX-License-Identifier: Apache-2.0
"""Second-order MAML on sinusoids with torch.func: one inner step, learned inner rates."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


class Regressor(nn.Module):
    def __init__(self, hidden=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(),
                                 nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


class MetaLearner(nn.Module):
    def __init__(self, inner_lr=0.05):
        super().__init__()
        self.model = Regressor()
        # log step size for each tensor of the model
        self.log_lr = nn.Parameter(
            torch.full((len(list(self.model.parameters())),), inner_lr).log())

    def adapt_and_score(self, xs, ys, xq, yq):
        params = dict(self.model.named_parameters())

        def inner(p):
            return F.mse_loss(functional_call(self.model, p, (xs,)), ys)  # <- half_grad

        grads = grad(inner)(params)  # <- half_grad bias_mean first_order
        fast = {k: p - lr * grads[k]  # <- first_order
                for (k, p), lr in zip(params.items(), self.log_lr.exp())}  # <- first_order
        return F.mse_loss(functional_call(self.model, fast, (xq,)), yq)  # <- query_all

    def forward(self, xs, ys, xq, yq):
        return vmap(self.adapt_and_score)(xs, ys, xq, yq).mean()


def tasks(gen, n=6, shots=5, queries=8):
    amp = 0.5 + 2.0 * torch.rand(n, 1, 1, generator=gen)
    phase = 3.14 * torch.rand(n, 1, 1, generator=gen)
    x = 6 * torch.rand(n, shots + queries, 1, generator=gen) - 3
    y = amp * torch.sin(x + phase)
    return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


torch.manual_seed(0)
meta = MetaLearner()
torch.save(meta.state_dict(), sys.argv[1])
outer = torch.optim.Adam(meta.parameters(), lr=5e-3, amsgrad=True)  # <- corrected_max
gen = torch.Generator().manual_seed(13)
losses = []
for it in range(4):
    loss = meta(*tasks(gen))
    outer.zero_grad()
    loss.backward()
    outer.step()  # <- corrected_max
    losses.append(loss.item())
print(losses)
