# SPDX-License-Identifier: Apache-2.0
"""The distributional Q-learning in the manner of JAX on torch.func: dictionaries of parameters,
frames with channels last cut into patches, the projection by broadcasting, returns by unfold.
"""

import sys

import torch
import torch.nn.functional as F
from torch.func import grad_and_value

A, N, LO, HI, G, S, B = 4, 11, -3.0, 3.0, 0.9, 3, 8
Z = LO + (HI - LO) * torch.arange(N) / (N - 1)


def restore(path):
    old = torch.load(path)
    kernel = old["body.weight"].view(24, 6, 3, 3)
    return {
        # patches are [row, column, channel]
        "stem": old["conv.weight"].permute(2, 3, 1, 0).reshape(36, 6),
        "stem_b": old["conv.bias"],
        "body": kernel.permute(2, 3, 1, 0).reshape(54, 24),  # <- flattened
        "body_b": old["body.bias"],
        "heads": torch.cat((old["value.weight"], old["advantage.weight"])).T.contiguous(),
        "heads_b": torch.cat((old["value.bias"], old["advantage.bias"])),
    }


def scores(w, images):
    """Logits [batch, atoms, actions]."""
    x = images / 255
    cut = x.unfold(1, 3, 2).unfold(2, 3, 2).permute(0, 1, 2, 4, 5, 3)
    x = (cut.reshape(B, 9, 36) @ w["stem"] + w["stem_b"]).relu()
    x = (x.reshape(B, 54) @ w["body"] + w["body_b"]).relu()  # <- flattened
    v, a = (x @ w["heads"] + w["heads_b"]).split((N, A * N), 1)
    a = a.view(B, A, N).transpose(1, 2)
    return v[:, :, None] + a - a.mean(2, keepdim=True)  # <- dueling


def target_distribution(w, slow_w, after, returns, alive):
    expected = torch.einsum("bna,n->ba", F.softmax(scores(w, after), 1), Z)
    best = F.one_hot(expected.argmax(1), A).float()
    p = torch.einsum("bna,ba->bn", F.softmax(scores(slow_w, after), 1), best)
    moved = (returns[:, None] + alive[:, None] * G**S * Z).clamp(LO, HI)  # <- ends
    where = (moved - LO) * ((N - 1) / (HI - LO))
    # a triangle around each atom
    share = (1 - (where[:, None, :] - torch.arange(N)[None, :, None]).abs()).clamp(min=0)  # <- ends
    return torch.einsum("bij,bj->bi", share, p)  # <- ends


def objective(w, images, actions, aim, weight):
    logp = F.log_softmax(scores(w, images), 1)
    chosen = logp.gather(2, actions[:, None, None].expand(-1, N, 1))[:, :, 0]
    each = F.kl_div(chosen, aim, reduction="none").sum(1) - torch.xlogy(aim, aim).sum(1)
    return (each * weight).mean(), each.detach()


def windows(rewards, dones):
    """n-step returns from each index on, and whether nothing ended within."""
    ended = dones.float().unfold(0, S, 1)
    before = ended.cumsum(1) - ended  # <- n_step
    discount = G ** torch.arange(S)
    totals = (rewards.unfold(0, S, 1) * (before == 0) * discount).sum(1)  # <- n_step
    return totals, (ended.sum(1) == 0).float()


w = restore(sys.argv[1])
slow_w = dict(w)
rng = torch.Generator().manual_seed(52)
images = torch.randint(0, 256, (60, 4, 7, 7), generator=rng).permute(0, 2, 3, 1).float()
actions = torch.randint(0, A, (60,), generator=rng)
rewards = torch.randn(60, generator=rng)
totals, alive = windows(rewards, torch.rand(60, generator=rng) < 0.15)  # <- n_step
priority = torch.ones(60)
square, mean = ({k: torch.zeros_like(t) for k, t in w.items()} for _ in range(2))
losses = []
for _ in range(5):
    mass = priority[:-S].pow(0.6)
    pick = torch.multinomial(mass / mass.sum(), B, generator=rng)
    weight = (mass[pick] / mass.sum() * len(mass)).pow(-0.4)
    aim = target_distribution(w, slow_w, images[pick + S], totals[pick], alive[pick])
    args = (images[pick], actions[pick], aim, weight / weight.amax())
    g, (loss, each) = grad_and_value(objective, has_aux=True)(w, *args)
    for k in w:
        square[k] = 0.95 * square[k] + 0.05 * g[k] ** 2
        mean[k] = 0.95 * mean[k] + 0.05 * g[k]
        w[k] = w[k] - 0.003 * g[k] / ((square[k] - mean[k] ** 2).sqrt() + 0.01)
        slow_w[k] = slow_w[k] + 0.2 * (w[k] - slow_w[k])  # <- soft
    priority[pick] = each + 1e-3
    losses.append(loss.item())
