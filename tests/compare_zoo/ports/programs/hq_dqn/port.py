# SPDX-License-Identifier: Apache-2.0
"""Offline Q-learning over arrays: one fused head, only live rows bootstrapped, target as a snapshot dictionary."""
import random
import sys

import torch
from torch import nn
from torch.func import functional_call

torch.set_num_threads(1)


class QNet(nn.Module):
    """Both heads' hidden layers are one linear; the dueling combination is a constant matrix."""

    def __init__(self, obs=8, acts=4, hidden=32, head=16):
        super().__init__()
        self.l1, self.l2 = nn.Linear(obs, hidden), nn.Linear(hidden, hidden)
        self.heads = nn.Linear(hidden, 2 * head)
        self.v_out = nn.Parameter(torch.empty(head))
        self.v_off = nn.Parameter(torch.empty(()))
        self.a_out = nn.Parameter(torch.empty(head, acts))
        self.a_off = nn.Parameter(torch.empty(acts))
        self.register_buffer("centring", torch.eye(acts) - 1 / acts, persistent=False)

    def forward(self, x):
        h = self.l2(self.l1(x).clamp(min=0)).clamp(min=0)
        hv, ha = self.heads(h).clamp(min=0).tensor_split(2, dim=-1)
        adv = torch.addmm(self.a_off, ha, self.a_out) @ self.centring
        return adv + (hv @ self.v_out + self.v_off)[:, None]

    @torch.no_grad()
    def adopt(self, sd):
        for mod, k in ((self.l1, "feature.0"), (self.l2, "feature.2")):
            mod.weight.copy_(sd[k + ".weight"]), mod.bias.copy_(sd[k + ".bias"])
        for kind in ("weight", "bias"):
            getattr(self.heads, kind).copy_(torch.cat([sd["value.0." + kind], sd["advantage.0." + kind]]))
        self.v_out.copy_(sd["value.2.weight"][0]), self.v_off.copy_(sd["value.2.bias"][0])
        self.a_out.copy_(sd["advantage.2.weight"].t()), self.a_off.copy_(sd["advantage.2.bias"])
        return self


def record(n=80, obs=8, acts=4):
    """The whole log as columns. A state is stored once; transitions hold row numbers."""
    g = torch.Generator().manual_seed(530)
    states, rows = [torch.randn(obs, generator=g)], []
    for _ in range(n):
        i, s = len(states) - 1, states[-1]
        a = torch.randint(acts, (1,), generator=g).item()
        nxt = 0.9 * s + 0.5 * torch.randn(obs, generator=g)
        nxt[a] += 0.3
        reward = (2.0 * nxt[a] - 0.1 * (nxt * nxt).sum()).item()
        end = torch.rand((), generator=g).item() < 0.15
        weight = 0.5 + 0.5 * torch.rand((), generator=g).item()
        states.append(nxt)
        rows.append((i, a, reward, i + 1, end, weight))
        if end:
            states.append(torch.randn(obs, generator=g))
    i, a, r, j, e, w = zip(*rows)
    return dict(obs=torch.stack(states), i=torch.tensor(i), a=torch.tensor(a), r=torch.tensor(r), j=torch.tensor(j),
                live=~torch.tensor(e), w=torch.tensor(w))


class ClippedRMS:
    def __init__(self, params, lr, alpha, eps, momentum, clip):
        self.ps = list(params)
        self.lr, self.alpha, self.eps, self.mom, self.clip = lr, alpha, eps, momentum, clip
        self.sq = [torch.zeros_like(p) for p in self.ps]
        self.buf = [torch.zeros_like(p) for p in self.ps]

    @torch.no_grad()
    def apply(self, grads):
        g = torch._foreach_clamp_max(torch._foreach_clamp_min(list(grads), -self.clip), self.clip)
        torch._foreach_mul_(self.sq, self.alpha)
        torch._foreach_addcmul_(self.sq, g, g, 1 - self.alpha)
        torch._foreach_mul_(self.buf, self.mom)
        torch._foreach_addcdiv_(self.buf, g, torch._foreach_add(torch._foreach_sqrt(self.sq), self.eps))
        torch._foreach_sub_(self.ps, torch._foreach_mul(self.buf, self.lr))


log = record()
net = QNet().adopt(torch.load(sys.argv[1]))
frozen = {k: v.detach().clone() for k, v in net.named_parameters()}
rule = ClippedRMS(net.parameters(), 2e-3, 0.95, 1e-2, 0.5, 0.05)
dice = random.Random(9)
schedule = [torch.tensor(dice.sample(range(80), 12)) for _ in range(6)]

losses, tderr, agree = [], [], []
for step, pick in enumerate(schedule):
    pick = pick[log["a"][pick].argsort(stable=True)]           # grouped by action
    now, nxt, live = log["obs"][log["i"][pick]], log["obs"][log["j"][pick]], log["live"][pick]
    every = net(torch.cat([now, nxt[live]]))                   # one pass; the second part only chooses
    chosen = every[:12].masked_select(nn.functional.one_hot(log["a"][pick], 4).bool())
    with torch.no_grad():
        pi = every[12:].max(1).indices
        boot = functional_call(net, frozen, (nxt[live],))
        goal = log["r"][pick].index_add(0, torch.where(live)[0], 0.97 * boot[torch.arange(len(pi)), pi])
        agree.append((boot.argmax(1) == pi).float().mean().item())
    err = chosen - goal
    clipped = err.detach().abs().clamp(max=1)
    loss = (log["w"][pick] * clipped * (err.abs() - 0.5 * clipped)).mean()      # value of Huber
    grads = torch.autograd.grad((log["w"][pick] * err.detach().clamp(-1, 1) * chosen).mean(), rule.ps)
    rule.apply(grads)
    tderr.append(err.detach().abs().max().item())
    if step % 2:
        frozen = {k: v.detach().clone() for k, v in net.named_parameters()}
    losses.append(loss.item())
print(losses)
