# SPDX-License-Identifier: Apache-2.0
"""Clipped policy optimisation: advantages by one matrix product, both networks block-diagonal."""

import sys

import torch

T, E, FEATS, CHOICES = 12, 4, 6, 3
DISCOUNT, TRACE = 0.95, 0.9  # <- lambda_mix
EPS, BONUS, CRITIC = 0.1, 0.02, 0.5  # <- value_half


def read(path):
    sd = torch.load(path, weights_only=True)
    take = lambda part, n: (sd[f"{part}.{n}.weight"].t().clone(), sd[f"{part}.{n}.bias"].clone())
    parts = [(part, n) for part in ("actor", "critic") for n in (0, 2)]
    return [t.requires_grad_() for part, n in parts for t in take(part, n)]


def heads(theta, s):
    w1, b1, w2, b2, w3, b3, w4, b4 = theta
    hidden = torch.tanh(s @ torch.cat([w1, w3], 1) + torch.cat([b1, b3]))
    pi, vf = hidden.split(16, -1)
    return torch.log_softmax(pi @ w2 + b2, -1), (vf @ w4)[..., 0] + b4


def advantage(rew, val, boot, alive):
    """Everything is (T, E); alive[t] is 0 where the episode has ended after step t."""
    after = torch.cat([val[1:], boot[None]])
    td = rew + DISCOUNT * alive * after - val  # <- done_shift
    out = torch.empty_like(td)
    for e in range(E):
        chain = torch.eye(T)
        for i in range(T - 1):
            step = DISCOUNT * TRACE * alive[i : T - 1, e]  # <- done_shift lambda_mix
            chain[i, i + 1 :] = step.cumprod(0)  # <- lambda_mix
        out[:, e] = chain @ td[:, e]
    return out


def surrogate(theta, old, s, a, adv, ret):
    old_logp, old_v = old
    logits, v = heads(theta, s)
    adv = adv - adv.mean()  # <- advantage_norm
    adv = adv / (adv.square().sum().div(len(adv) - 1).sqrt() + 1e-8)  # <- advantage_norm
    rho = torch.exp(logits.gather(1, a[:, None])[:, 0] - old_logp)
    bound = torch.where(adv > 0, 1 + EPS, 1 - EPS) * adv  # <- pessimistic
    policy = torch.minimum(rho * adv, bound).mean()  # <- pessimistic
    near = old_v + (v - old_v).clamp(-EPS, EPS)
    worst = torch.maximum((v - ret).abs(), (near - ret).abs())
    critic = worst.square().sum() / (2 * len(s))  # <- value_half
    spread = -(logits.exp() * logits).sum(-1).mean()
    return CRITIC * critic - policy - BONUS * spread  # <- value_half


theta = read(sys.argv[1])
rng = torch.Generator().manual_seed(37)
states = torch.randn(T, E, FEATS, generator=rng)
last = torch.randn(E, FEATS, generator=rng)
acts = torch.randint(0, CHOICES, (T, E), generator=rng)
rew = torch.randn(T, E, generator=rng)
ended = (torch.rand(T + 1, E, generator=rng) < 0.2).float()
shuffle = torch.randperm(T * E, generator=rng)

with torch.no_grad():
    logp0, val0 = heads(theta, states)
    logp0 = logp0.gather(-1, acts.unsqueeze(-1)).squeeze(-1)
    adv = advantage(rew, val0, heads(theta, last)[1], 1 - ended[1:])  # <- done_shift
    ret = val0 + adv
flat = [t.flatten(0, 1) for t in (logp0, val0, states, acts, adv, ret)]

mom = [torch.zeros_like(w) for w in theta]
sec = [torch.zeros_like(w) for w in theta]
losses = []
for n, pick in enumerate(shuffle.split(12), 1):
    lp, v0, s, a, ad, r = (t[pick] for t in flat)
    loss = surrogate(theta, (lp, v0), s, a, ad, r)
    grads = torch.autograd.grad(loss, theta)
    size = sum(g.square().sum() for g in grads).sqrt()
    if size + 1e-6 > 0.5:
        grads = [g * (0.5 / (size + 1e-6)) for g in grads]
    with torch.no_grad():
        for w, g, m, q in zip(theta, grads, mom, sec):
            m.mul_(0.9).add_(0.1 * g)
            q.mul_(0.999).add_(0.001 * g * g)
            w -= 2e-2 * (m / (1 - 0.9**n)) / ((q / (1 - 0.999**n)).sqrt() + 1e-5)
    losses.append(loss.item())
print(losses)
