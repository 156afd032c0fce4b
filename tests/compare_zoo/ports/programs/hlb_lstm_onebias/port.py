# SPDX-License-Identifier: Apache-2.0
"""Hand-rolled LSTM with one bias per cell; b_ih + b_hh is one parameter at twice the rate."""
import math
import sys

import torch
from torch import nn


class Cell(nn.Module):
    """Gates ordered (forget, input, output, candidate); one matrix over [h, x]."""

    ORDER = (1, 0, 3, 2)  # <- gate_order

    def __init__(self, sd, layer):
        super().__init__()
        pick = lambda t: torch.cat([t.chunk(4)[k] for k in self.ORDER])  # <- gate_order
        wi, wh = (pick(sd[f"rnn.weight_{s}_l{layer}"]) for s in ("ih", "hh"))
        self.kernel = nn.Parameter(torch.cat([wh, wi], dim=1).T.contiguous())
        self.bias = nn.Parameter(pick(sd[f"rnn.bias_ih_l{layer}"] + sd[f"rnn.bias_hh_l{layer}"]))
        self.width = wh.shape[1]

    def forward(self, x, h, c):
        z = torch.cat([h, x], dim=-1) @ self.kernel + self.bias
        gates, cand = z[:, : 3 * self.width].sigmoid(), z[:, 3 * self.width :].tanh()
        f, i, o = gates.split(self.width, dim=1)  # <- gate_order
        c = f * c + i * cand
        return o * c.tanh(), c  # <- cell_out


class Stack(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.cells = nn.ModuleList([Cell(sd, 0), Cell(sd, 1)])
        self.out_w = nn.Parameter(sd["head.weight"].clone())
        self.out_b = nn.Parameter(sd["head.bias"].clone())

    def forward(self, xs):                       # time-major, both layers advance together
        state = [(xs.new_zeros(xs.shape[1], c.width),) * 2 for c in self.cells]
        preds = []
        for x in xs:
            for k, cell in enumerate(self.cells):
                state[k] = cell(x, *state[k])
                x = state[k][0]
            preds.append(x @ self.out_w.T + self.out_b)
        return torch.stack(preds)


net = Stack(torch.load(sys.argv[1], weights_only=True))
merged = [c.bias for c in net.cells]
single = [p for p in net.parameters() if all(p is not b for b in merged)]
opt = torch.optim.Adam([{"params": single}, {"params": merged}], lr=0.0)

gen = torch.Generator().manual_seed(77)
losses = []
for k in range(5):
    phase = 6.28 * torch.rand(12, 1, 4, generator=gen)
    freq = 0.2 + 0.5 * torch.rand(12, 1, 4, generator=gen)
    t = torch.arange(17).view(1, -1, 1)
    x = (torch.sin(freq * t + phase) + 0.05 * torch.randn(12, 17, 4, generator=gen)).transpose(0, 1)

    err = net(x[:-1]) - x[1:]  # <- target_shift
    loss = err.pow(2).mean(dim=(1, 2)).mean()
    net.zero_grad()
    loss.backward()

    # each merged bias stands for two equal gradients in the global norm
    total = (sum(p.grad.square().sum() for p in single)
             + 2 * sum(b.grad.square().sum() for b in merged))
    shrink = (0.08 / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for p in net.parameters():
        p.grad.mul_(shrink)

    rate = 4e-4 + 0.5 * (4e-3 - 4e-4) * (1 + math.cos(math.pi * k / 5))  # <- schedule
    opt.param_groups[0]["lr"], opt.param_groups[1]["lr"] = rate, 2 * rate  # <- bias_rate schedule
    opt.step()  # <- bias_rate
    losses.append(loss.item())

print(losses)
