# SPDX-License-Identifier: Apache-2.0
"""The N-BEATS ensemble in one go: parameters stacked by member, vmap and grad of torch.func,
one matrix per basis for back- and forecast together, Lion over lists with foreach functions.
"""

import sys

import torch
from torch.func import grad_and_value, vmap

L, H, MEMBERS, STEPS = 12, 6, 2, 4
LR, BETA1, BETA2, DECAY = 2e-3, 0.9, 0.99, 0.5  # <- betas
PLAN = ("trend", "trend", "season_a", "season_b")
SOURCE = {"trend": 0, "season_a": 2, "season_b": 3}


def bases():
    """Matrices [coefficients, horizon and lookback]; the forecast's coefficients come first."""
    powers = torch.arange(3)[:, None]
    trend = [(torch.arange(n) / n).pow(powers) for n in (H, L)]  # <- grid
    season = []
    for n in (H, L):
        phase = 2 * torch.pi * torch.arange(1, 3)[:, None] * (torch.arange(n) / H)
        season.append(torch.cat((phase.cos(), phase.sin())))
    trend, season = torch.block_diag(*trend), torch.block_diag(*season)  # <- grid
    return {"trend": trend, "season_a": season, "season_b": season}


BASIS = bases()


def stacked(path):
    old = torch.load(path)
    names = {"w0": "layers.0", "w1": "layers.1", "w2": "parameters_of_basis"}
    tree = {}
    for part, n in SOURCE.items():
        for new, name in names.items():
            keys = [f"{m}.blocks.{n}.{name}" for m in range(MEMBERS)]  # <- member
            tree[part, new] = torch.stack([old[f"{k}.weight"].T for k in keys])  # <- member
            tree[part, new.replace("w", "b")] = torch.stack([old[f"{k}.bias"] for k in keys])
    return tree


def forecast(w, x, mask):
    """One member's forecast of one series."""
    rest, known = x.flip(0), mask.flip(0)  # <- flipped
    total = x[-1]
    for part in PLAN:
        h = (rest @ w[part, "w0"] + w[part, "b0"]).clamp(min=0)  # <- member flipped
        h = (h @ w[part, "w1"] + w[part, "b1"]).clamp(min=0)
        both = (h @ w[part, "w2"] + w[part, "b2"]) @ BASIS[part]  # <- grid
        total = total + both[:H]
        rest = (rest - both[H:]) * known
    return total


def criterion(w, which, x, mask, target):
    """Both measures are weighted absolute errors; `which` picks the weights."""
    y = vmap(forecast, in_dims=(None, 0, 0))(w, x, mask)
    season = (x[:, 2:] - x[:, :-2]).abs().mean(1, keepdim=True)
    by_smape = 200 / (y.detach().abs() + target.abs())  # <- detached
    weights = torch.stack((by_smape, (1 / season).expand(-1, H)))
    weight = (weights * which[:, None, None]).sum(0)
    return (weight * (y - target).abs()).mean()  # <- detached


train = vmap(grad_and_value(criterion), in_dims=(0, 0, None, None, None))
params = stacked(sys.argv[1])
momenta = [torch.zeros_like(p) for p in params.values()]
rng = torch.Generator().manual_seed(32)
losses = []
for _ in range(STEPS):
    series = torch.rand(10, L + H, generator=rng) + 0.5
    length = torch.randint(L // 2, L + 1, (10, 1), generator=rng)
    mask = (torch.arange(L - 1, -1, -1) < length).float()
    history, future = series.split((L, H), dim=1)
    grads, values = train(params, torch.eye(MEMBERS), history * mask, mask, future)
    grads = list(grads.values())
    update = torch._foreach_sign(torch._foreach_lerp(grads, momenta, BETA1))  # <- betas
    weights = list(params.values())
    torch._foreach_mul_(weights, 1 - LR * DECAY)
    torch._foreach_add_(weights, update, alpha=-LR)  # <- betas
    torch._foreach_lerp_(momenta, grads, 1 - BETA2)  # <- betas
    losses.append(values.sum().item())
