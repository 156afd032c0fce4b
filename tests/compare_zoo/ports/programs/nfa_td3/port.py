# SPDX-License-Identifier: Apache-2.0
"""TD3 as a state-passing program; the two critics are one stack with a leading axis of 2."""
import sys
from typing import NamedTuple, Any
import torch
from torch.utils import _pytree as pytree

torch.set_num_threads(1)


class Learner(NamedTuple):
    pi: Any
    qs: Any
    pi_slow: Any
    qs_slow: Any
    pi_opt: Any
    qs_opt: Any


def tmap(f, *trees):
    return pytree.tree_map(f, *trees)


def elu(x):
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))  # <- elu_alpha


def policy(pi, s):
    return torch.tanh(elu(s @ pi["hid"]["w"] + pi["hid"]["b"])  # <- elu_alpha
                      @ pi["act"]["w"] + pi["act"]["b"])


def q_values(qs, s, a):
    """Both critics at once: (2, batch)."""
    h = torch.cat((s, a), -1).expand(2, -1, -1)
    for name in ("in", "mid"):
        h = elu(torch.baddbmm(qs[name]["b"].unsqueeze(1), h, qs[name]["w"]))  # <- elu_alpha
    return torch.baddbmm(qs["out"]["b"].unsqueeze(1), h, qs["out"]["w"]).squeeze(-1)


def critic_loss(qs, s, a, y):
    return (q_values(qs, s, a) - y).square().mean(1).sum()


def policy_loss(pi, qs, s):
    return -q_values(qs, s, policy(pi, s))[0].mean()


def adam_init(tree):
    return 0, tmap(torch.zeros_like, tree), tmap(torch.zeros_like, tree)


def adam(tree, g, state, lr):
    n, m, v = state
    n += 1
    m = tmap(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = tmap(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    c1, c2 = 1 - 0.9 ** n, 1 - 0.999 ** n
    return tmap(lambda p, a, b: p - lr * (a / c1) / ((b / c2).sqrt() + 1e-6),  # <- policy_rate
                tree, m, v), (n, m, v)


def restore(path):
    sd = torch.load(path, weights_only=True)
    lin = lambda k: {"w": sd[k + ".weight"].T, "b": sd[k + ".bias"]}
    pi = {"hid": lin("actor.l1"), "act": lin("actor.l2")}
    qs = {n: tmap(lambda a, b: torch.stack((a, b)), lin(f"q1.{k}"), lin(f"q2.{k}"))
          for n, k in (("in", "l1"), ("mid", "l2"), ("out", "l3"))}
    return Learner(pi, qs, pi, qs, adam_init(pi), adam_init(qs))


def critic_update(L, batch, noise):
    s, a, r, s2, done = batch
    a2 = torch.clamp(policy(L.pi_slow, s2) + noise, -1, 1)
    y = r + 0.97 * (1 - done) * q_values(L.qs_slow, s2, a2).amin(0)  # <- twin_min stale_target
    g, val = torch.func.grad_and_value(critic_loss)(L.qs, s, a, y)
    qs, opt = adam(L.qs, g, L.qs_opt, 3e-3)
    return L._replace(qs=qs, qs_opt=opt), float(val)


def policy_update(L, s, tau=0.05):
    g, val = torch.func.grad_and_value(policy_loss)(L.pi, L.qs, s)
    pi, opt = adam(L.pi, g, L.pi_opt, 1e-3)  # <- policy_rate
    mix = lambda slow, fast: (1 - tau) * slow + tau * fast  # <- stale_target
    return L._replace(pi=pi, pi_opt=opt, pi_slow=tmap(mix, L.pi_slow, pi),
                      qs_slow=tmap(mix, L.qs_slow, L.qs)), float(val)  # <- stale_target


gen = torch.Generator().manual_seed(5)
n = 64
obs = torch.randn(n, 5, generator=gen)
act = torch.rand(n, 2, generator=gen) * 2 - 1
nxt = obs + 0.1 * torch.randn(n, 5, generator=gen)
rew = -(obs[:, 0] - act[:, 0]).abs()
end = (torch.rand(n, 1, generator=gen) < 0.1).float().squeeze(1)

L = restore(sys.argv[1])
losses = []
for t in range(5):
    pick = torch.randint(0, n, (16,), generator=gen)
    noise = (0.2 * torch.randn(16, 2, generator=gen)).clamp(-0.5, 0.5)  # <- noise_clip
    L, val = critic_update(L, tuple(z[pick] for z in (obs, act, rew, nxt, end)), noise)
    if t % 2:
        L, extra = policy_update(L, obs[pick])
        val += extra
    losses.append(val)

print(losses)
