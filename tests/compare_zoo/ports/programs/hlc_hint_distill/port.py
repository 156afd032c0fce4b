# SPDX-License-Identifier: Apache-2.0
"""Both networks as lists of homogeneous matrices; one joint objective, two update rules."""
import sys
import torch

stored = torch.load(sys.argv[1], weights_only=True)


def fold(prefix, n):
    """[W | b] transposed: the bias is the last row."""
    return [torch.cat([stored[f"{prefix}.layers.{i}.weight"],
                       stored[f"{prefix}.layers.{i}.bias"][:, None]], 1).t().contiguous()
            for i in range(n)]


small, big = fold("student", 3), fold("teacher", 4)
proj = [stored["hint1.weight"].t().clone(), stored["hint0.weight"].t().clone()]
sgd_group, ada_group = proj + small, big


def hidden(x, mats):
    one, acts = x.new_ones(len(x), 1), []
    for m in mats:
        pre = torch.cat([x, one], 1) @ m
        acts.append(pre)  # <- preact
        x = torch.maximum(pre, 0.1 * pre)
    return acts


def leaky(z):
    return z.clamp(min=0) + 0.1 * z.clamp(max=0)


def joint(data, onehot, big, small, proj, temp=3.0):
    s = hidden(data, small)
    t = hidden(data, big)
    own = (t[-1].logsumexp(1) - (t[-1] * onehot).sum(1)).mean()
    t = [a.detach() for a in t]  # <- detach
    log_p, log_q = (t[-1] / temp).log_softmax(1), (s[-1] / temp).log_softmax(1)  # <- detach
    soft = (log_p.exp() * (log_p - log_q)).sum(1).mean() * temp ** 2  # <- temperature
    hard = -(s[-1].log_softmax(1) * onehot).sum() / len(data)
    hints = sum((leaky(s[i]) @ proj[1 - i] - leaky(t[i + 1])).square().mean()  # <- preact detach
                for i in (1, 0))  # <- preact detach
    return own + 0.5 * hints + 0.3 * hard + 0.7 * soft


history = [torch.full_like(m, 1e-3) for m in ada_group]  # <- accumulator
velocity = None
gen = torch.Generator().manual_seed(77)
losses, hits = [], 0
for _ in range(5):
    data = torch.randn(20, 12, generator=gen)
    label = torch.randint(0, 7, (20,), generator=gen)
    for m in sgd_group + ada_group:
        m.requires_grad_(True)
    total = joint(data, torch.eye(7)[label], big, small, proj)
    grads = torch.autograd.grad(total, sgd_group + ada_group)
    g_sgd, g_ada = grads[:len(sgd_group)], grads[len(sgd_group):]
    with torch.no_grad():
        hits += (hidden(data, small)[-1].argmax(1) == label).sum().item()
        push = [g + 1e-3 * m for g, m in zip(g_sgd, sgd_group)]
        velocity = push if velocity is None else [  # <- dampening
            0.9 * (v + u) for v, u in zip(velocity, push)]  # <- dampening
        for m, v in zip(sgd_group, velocity):
            m -= 0.05 * v  # <- dampening
        for m, h, g in zip(ada_group, history, g_ada):
            h += g * g  # <- accumulator
            m -= 0.02 * g / (h ** 0.5 + 1e-4)  # <- accumulator
    losses.append(total.item())
print("student hits", hits)
print(losses)
