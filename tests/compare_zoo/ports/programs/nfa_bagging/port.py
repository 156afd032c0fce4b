# SPDX-License-Identifier: Apache-2.0
"""Ensemble training on a leading member axis, everything under vmap."""
import sys
import torch
from torch.func import grad, grad_and_value, vmap

torch.set_num_threads(1)
M = 4
RATE = torch.tensor([1e-3, 2e-3, 3e-3, 4e-3])


def load_stacked(path):
    sd = torch.load(path, weights_only=True)
    stack = lambda s: torch.stack([sd[f"{m}.{s}"] for m in range(M)])
    return [torch.cat([stack(f"fc{i}.weight"), stack(f"fc{i}.bias")[..., None]], -1)
            for i in (1, 2, 3)]


def affine(wb, x):
    """wb holds the bias as its last column."""
    return wb[:, :-1] @ x + wb[:, -1]


def forward(ws, x):
    a, b, c = ws
    h = torch.log1p(torch.exp(affine(a, x)))
    return affine(c, h + torch.tanh(affine(b, h)))  # <- skip_lost


def xent(ws, x, onehot):
    z = forward(ws, x)
    return torch.logsumexp(z, 0) - (z * onehot).sum()


def member_loss(ws, xs, ohs):
    return vmap(xent, (None, 0, 0))(ws, xs, ohs).mean()


def perturb(ws, xs, ohs, eps):
    return xs + eps * torch.sign(grad(member_loss, argnums=1)(ws, xs, ohs))  # <- attack_sign


def objective(ws, xs, adv, ohs):
    return 0.5 * (member_loss(ws, xs, ohs) + member_loss(ws, adv, ohs))


def member_step(ws, m, v, n, lr, xs, ohs):
    adv = perturb(ws, xs, ohs, 0.05)
    g, val = grad_and_value(objective)(ws, xs, adv, ohs)
    g = [d + 1e-3 * w for d, w in zip(g, ws)]
    n = n + 1  # <- count_kept
    m = [0.9 * a + 0.1 * d for a, d in zip(m, g)]
    v = [0.999 * a + 0.001 * d * d for a, d in zip(v, g)]
    c1, c2 = 1 - torch.pow(0.9, n), torch.sqrt(1 - torch.pow(0.999, n))  # <- count_kept
    ws = [w - lr / c1 * a / (torch.sqrt(b) / c2 + 1e-5) for w, a, b in zip(ws, m, v)]  # <- eps_spot
    return ws, m, v, n, val


def restart(member, carry, first):
    ws, m, v, n = carry
    hit = torch.arange(M) == member
    wide = lambda t: hit.view(-1, *[1] * (t.dim() - 1))
    blank = lambda ts: [torch.where(wide(t), torch.zeros_like(t), t) for t in ts]
    return ([torch.where(wide(t), f, t) for t, f in zip(ws, first)],
            blank(m), blank(v), n * ~hit)  # <- count_kept


gen = torch.Generator().manual_seed(14)
X = torch.randn(40, 8, generator=gen)
labels = ((X[:, 0] + X[:, 1] ** 2) > 0.5).long() + (X[:, 2] > 1).long()  # <- label_square
OH = torch.eye(3)[labels]
probe = torch.randn(10, 8, generator=gen)

first = load_stacked(sys.argv[1])
carry = (first, [torch.zeros_like(w) for w in first], [torch.zeros_like(w) for w in first],
         torch.zeros(M, dtype=torch.float64))
losses = []
for step in range(5):
    if step == 3:
        carry = restart(1, carry, first)
    idx = torch.stack([torch.randint(0, 40, (12,), generator=gen) for _ in range(M)])
    *carry, vals = vmap(member_step)(*carry, RATE, X[idx], OH[idx])
    p = vmap(lambda ws: vmap(forward, (None, 0))(ws, probe))(carry[0]).softmax(-1)
    spread = ((p - p.mean(0)) ** 2).sum(0) / (M - 1)
    losses.append(vals.mean().item() + spread.sum(-1).mean().item())

print(losses)
