# SPDX-License-Identifier: Apache-2.0
"""TD3 with both critics stacked along a leading axis (batched products), discount matrices,
one optimizer helper."""
import math
import sys

import torch

O, A, NQ = 6, 2, 2


class TwinQ(torch.nn.Module):
    """All weights [2, in, out]; observations and actions enter through separate matrices."""

    def __init__(self, sd):
        super().__init__()
        both = lambda n: torch.stack([sd[f"critic{i}.{n}"] for i in (1, 2)])
        w1 = both("fc1.weight")
        names = {"w_out": both("q.weight").squeeze(1), "b_out": both("q.bias"),
                 "w_hid": both("fc2.weight").mT, "b_hid": both("fc2.bias"),
                 "gain": both("ln.weight"), "shift": both("ln.bias"),
                 "w_act": w1[:, :, O:].mT, "w_obs": w1[:, :, :O].mT, "b_in": both("fc1.bias")}
        for n, t in names.items():
            self.register_parameter(
                n, torch.nn.Parameter(t.clone(memory_format=torch.contiguous_format)))

    def forward(self, obs, act):
        h = torch.matmul(obs, self.w_obs) + torch.matmul(act, self.w_act) + self.b_in[:, None]
        h = h - h.mean(-1, keepdim=True)
        h = (h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.gain[:, None]
             + self.shift[:, None])
        h = torch.baddbmm(self.b_hid[:, None], elu(h), self.w_hid)
        return torch.einsum("qbh,qh->qb", elu(h), self.w_out) + self.b_out          # [2, B]


def elu(x):
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))


class Policy(torch.nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.mats = torch.nn.ParameterList(
            torch.cat([sd[f"actor.{n}.bias"][None], sd[f"actor.{n}.weight"].T])
            for n in ("fc1", "fc2", "mu"))

    def forward(self, x):
        for m in self.mats[:-1]:
            x = elu(m[0] + x @ m[1:])
        x = self.mats[-1][0] + x @ self.mats[-1][1:]
        return 2 * torch.sigmoid(2 * x) - 1


def adam(params, memory, lr):
    """memory: dict with the step count and slots; bias correction inside the rate."""
    memory["t"] = t = memory.get("t", 0) + 1
    root = math.sqrt(1 - 0.999 ** t)
    with torch.no_grad():
        for i, p in enumerate(params):
            m, v = memory.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
            m.add_(p.grad - m, alpha=0.1)
            v.add_(p.grad.square() - v, alpha=0.001)
            p.addcdiv_(m, v.sqrt().add_(1e-5 * root), value=-lr * root / (1 - 0.9 ** t))
            p.grad = None


ckpt = torch.load(sys.argv[1], weights_only=True)
qnet, qtarg, policy, ptarg = TwinQ(ckpt), TwinQ(ckpt), Policy(ckpt), Policy(ckpt)
qmem, pmem = {}, {}
gamma = 0.97
discount = gamma ** torch.arange(3, dtype=torch.float32)
rng = torch.Generator().manual_seed(17)
B = 24
losses = []
for it in range(1, 6):
    s = torch.randn(B, O, generator=rng)
    a = torch.rand(B, A, generator=rng).mul(2).sub(1)
    r = torch.randn(B, 3, generator=rng)
    go_on = (torch.rand(B, 3, generator=rng) >= 0.15).float().cumprod(1)
    s2 = s + 0.3 * torch.randn(B, O, generator=rng)
    importance = 0.5 + torch.rand(B, generator=rng)
    eps = torch.randn(B, A, generator=rng)
    with torch.no_grad():
        before = torch.cat([torch.ones(B, 1), go_on[:, :-1]], 1)  # <- alive_shift
        a2 = torch.clamp(ptarg(s2) + torch.clamp(eps * 0.2, -0.3, 0.3), -1, 1)  # <- noise_order
        y = ((r * before) @ discount  # <- alive_shift
             + gamma ** 3 * go_on[:, -1] * qtarg(s2, a2).amin(0))
    err = (qnet(s, a) - y).abs()
    inside = err.clamp(max=0.7)
    huber = inside * (err - 0.5 * inside) / 0.7
    loss = torch.einsum("qb,b->", huber, importance) / B
    loss.backward()
    # each critic is clipped on its own
    sq = sum(p.grad.flatten(1).square().sum(1) for p in qnet.parameters())  # <- joint_clip
    shrink = (0.2 / (sq.sqrt() + 1e-6)).clamp(max=1.0)  # <- joint_clip
    for p in qnet.parameters():
        p.grad.mul_(shrink.view(-1, *[1] * (p.ndim - 1)))  # <- joint_clip
    value = loss.item()
    adam(list(qnet.parameters()), qmem, 3e-3)
    if it % 2:
        act = policy(s)
        q = qnet(s, act)[0]
        obj = (0.4 * (act - a).square().sum() / (B * A)  # <- actor_detach
               - q.sum() / q.detach().abs().sum())  # <- actor_detach
        for p, g in zip(policy.parameters(), torch.autograd.grad(obj, list(policy.parameters()))):
            p.grad = g
        adam(list(policy.parameters()), pmem, 1e-3)
        value += obj.item()
        with torch.no_grad():
            for slow, fast in ((qtarg, qnet), (ptarg, policy)):  # <- stale_target
                torch._foreach_lerp_(  # <- stale_target
                    list(slow.parameters()), list(fast.parameters()), 0.05)  # <- stale_target
    losses.append(value)
print(losses)
