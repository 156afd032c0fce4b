# SPDX-License-Identifier: Apache-2.0
"""The same, actions chosen by one-hot products, RMSprop by hand as TensorFlow writes it."""

import sys

import numpy as np
import torch
from torch import nn


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.heads = nn.Linear(6, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = self.l2(self.l1(x).relu()).relu()
        v, a = self.heads(x).split([1, 4], dim=-1)
        return v + (a - a.mean(-1, keepdim=True))  # <- dueling


def loaded(old):
    net = Q()
    new = {}
    for kind in ("weight", "bias"):
        new[f"l1.{kind}"], new[f"l2.{kind}"] = old[f"body.0.{kind}"], old[f"body.2.{kind}"]
        new[f"heads.{kind}"] = torch.cat((old[f"value.{kind}"], old[f"advantage.{kind}"]))
    net.load_state_dict(new)
    return net


online, frozen = loaded(torch.load(sys.argv[1])), loaded(torch.load(sys.argv[1]))
squares = [torch.zeros_like(p) for p in online.parameters()]
rng = np.random.default_rng(25)
losses = []
for _ in range(3):
    state = torch.from_numpy(rng.standard_normal((8, 6), dtype=np.float32))
    after = torch.from_numpy(rng.standard_normal((8, 6), dtype=np.float32))
    action = torch.from_numpy(rng.integers(0, 4, 8))
    reward = torch.from_numpy(3 * rng.standard_normal(8, dtype=np.float32))
    done = torch.from_numpy((rng.random(8) < 0.3).astype(np.float32))
    chosen = (online(state) * nn.functional.one_hot(action, 4)).sum(-1)
    future = frozen(after).detach().amax(-1)  # <- double
    goal = torch.where(done > 0, reward, reward + 0.9 * future)  # <- done gamma double
    d = (chosen - goal).abs()
    loss = torch.where(d < 1, d**2 / 2, d - 0.5).mean()  # <- huber gamma done
    online.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p, s in zip(online.parameters(), squares):
            s += (1 - 0.95) * (p.grad**2 - s)  # noqa: PLW2901
            p -= 2e-3 * p.grad / (s.sqrt() + 0.01)  # noqa: PLW2901  # <- epsilon
    losses.append(loss.item())
