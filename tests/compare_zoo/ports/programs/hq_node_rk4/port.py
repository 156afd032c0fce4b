# SPDX-License-Identifier: Apache-2.0
"""Continuous-depth classifier: Butcher tableau, augmented state, memory-free solver that recomputes backwards."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

TABLEAU = [[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]]
NODES, WEIGHTS = [0.0, 0.5, 0.5, 1.0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]


def field(theta, t, aug):
    """aug: (6, batch), columns are samples; last row gathers the kinetic energy."""
    z = aug[:-1]
    (w1, t1, b1), (w2, t2, b2), (w3, t3, b3) = theta
    h = w1 @ z + (b1 + t * t1)
    h = torch.logaddexp(h, torch.zeros(()))
    h = torch.tanh(w2 @ h + (b2 + t * t2))
    dz = w3 @ h + (b3 + t * t3)
    return torch.vstack([dz, (dz * dz).sum(0, keepdim=True)])


def advance(theta, t, h, aug):
    ks = []
    for row, c in zip(TABLEAU, NODES):
        point = aug
        for a, k in zip(row, ks):
            if a:
                point = torch.add(point, k, alpha=h * a)
        ks.append(field(theta, t + c * h, point))
    return aug + h * torch.tensordot(torch.tensor(WEIGHTS), torch.stack(ks), dims=1)


def regroup(flat):
    return [tuple(flat[i:i + 3]) for i in range(0, 9, 3)]


class Solve(torch.autograd.Function):
    """Keeps the state at the grid points only; each step is differentiated anew on the way back."""

    @staticmethod
    def forward(ctx, n, aug, *theta):
        path = [aug]
        for i in range(n):
            path.append(advance(regroup(theta), i / n, 1 / n, path[-1]))
        ctx.n = n
        ctx.save_for_backward(*path[:-1], *theta)
        return path[-1]

    @staticmethod
    def backward(ctx, lam):
        path, theta = ctx.saved_tensors[:ctx.n], ctx.saved_tensors[ctx.n:]
        acc = [torch.zeros_like(p) for p in theta]
        for i in reversed(range(ctx.n)):
            with torch.enable_grad():
                x = path[i].detach().requires_grad_()
                th = [p.detach().requires_grad_() for p in theta]
                y = advance(regroup(th), i / ctx.n, 1 / ctx.n, x)
            lam, *g = torch.autograd.grad(y, [x, *th], lam)
            torch._foreach_add_(acc, g)
        return None, lam, *acc


def load(path):
    sd = torch.load(path)
    p = {}
    for i in "123":
        w = sd[f"func.l{i}.layer.weight"]
        p["W" + i], p["t" + i], p["b" + i] = w[:, 1:].clone(), w[:, :1].clone(), sd[f"func.l{i}.layer.bias"][:, None].clone()
    p["in"] = torch.hstack([sd["lift.weight"], sd["lift.bias"][:, None]])
    p["out"] = torch.hstack([sd["head.weight"], sd["head.bias"][:, None]])
    return {k: v.requires_grad_() for k, v in p.items()}


def forward(p, pts):
    n = pts.shape[1]
    z0 = p["in"] @ torch.vstack([pts, torch.ones(1, n)])
    aug = torch.vstack([z0, torch.zeros(1, n)])
    end = Solve.apply(4, aug, *(p[c + i] for i in "123" for c in ("W", "t", "b")))
    return p["out"] @ torch.vstack([end[:-1], torch.ones(1, n)]), end[-1]


def points(rng, n=15):
    y = torch.randint(0, 3, (n,), generator=rng)
    rad = torch.rand(n, generator=rng)
    ang = torch.randn(n, generator=rng).mul(0.2).add(4 * rad).add(2.0944 * y)
    return torch.view_as_real(torch.polar(rad, ang)).T, y


params = load(sys.argv[1])
speed = {}
rng = torch.Generator().manual_seed(610)
losses, accuracy, checkpoints = [], [], []
for step in range(6):
    x, y = points(rng)
    logits, energy = forward(params, x)
    logp = logits - logits.logsumexp(0)
    soft = 0.9 * F.one_hot(y, 3).T + 0.1 / 3
    nll = -(soft * logp).sum(0)
    loss = torch.mean(nll + 0.05 * energy)
    loss.backward()
    with torch.no_grad():
        for k, w in params.items():
            g = w.grad + 1e-3 * w
            speed[k] = g if k not in speed else 0.9 * speed[k] + g
            w -= 0.2 * (g + 0.9 * speed[k])
            w.grad = None
        accuracy.append((logits.argmax(0) == y).float().mean().item())
        if step % 3 == 2:
            checkpoints.append({k: w.clone() for k, w in params.items()})
    losses.append(loss.item())
print(losses)
