# SPDX-License-Identifier: Apache-2.0
"""Ranker: one shared id table, multi-hot matmul lookup, square-of-sum interactions."""

import sys

import torch

SLOTS = [("user", 20), ("item", 30), ("query", 15)]
K, NUM = 6, 4
ckpt = torch.load(sys.argv[1], weights_only=True)

# one table for all slots; the wide weight is the last column
table = torch.cat(
    [
        torch.cat([ckpt[f"fields.{s}.bag.weight"], ckpt[f"fields.{s}.wide.weight"]], 1)
        for s, _ in SLOTS
    ]
)
net = {
    "cross_w": torch.stack([ckpt["cross.0.kernel"], ckpt["cross.1.kernel"]], 1),
    "cross_b": torch.stack([ckpt["cross.0.bias"], ckpt["cross.1.bias"]], 1),
    "w1": ckpt["deep.0.weight"].T,
    "b1": ckpt["deep.0.bias"],
    "w2": ckpt["deep.2.weight"].T,
    "b2": ckpt["deep.2.bias"],
    "top_cross": ckpt["top.weight"][0, :-4],
    "top_deep": ckpt["top.weight"][0, -4:],
    "top_b": ckpt["top.bias"][0],
}
table = table.clone().requires_grad_()
net = {k: v.clone().requires_grad_() for k, v in net.items()}


def multi_hot(gen, rows):
    """(rows, slots, vocabulary) counts and the number of ids in each bag"""
    total = sum(n for _, n in SLOTS)
    hot = torch.zeros(rows, len(SLOTS), total)
    sizes = torch.zeros(rows, len(SLOTS))
    base = 0
    for s, (_, n) in enumerate(SLOTS):
        counts = torch.randint(1, 4, (rows,), generator=gen)
        ids = torch.randint(0, n, (int(counts.sum()),), generator=gen)
        row = torch.repeat_interleave(torch.arange(rows), counts)
        hot.index_put_((row, torch.full_like(row, s), ids + base), torch.tensor(1.0), True)
        sizes[:, s] = counts
        base += n
    return hot, sizes


def score(hot, sizes, numeric):
    summed = hot @ table
    first_order = summed[..., K].sum(1)
    emb = summed[..., :K] / sizes[..., None]  # <- bag_mean
    s = emb.sum(1)
    pairwise = 0.5 * (s.square() - emb.square().sum(1)).sum(-1)  # <- fm_half
    base = torch.cat([emb.flatten(1), (1 + numeric).log()], -1)
    state = base
    for w, b in zip(net["cross_w"].T, net["cross_b"].T):
        state = state + torch.outer(state @ w, torch.ones_like(w)) * base + b  # <- cross_base
    h = base @ net["w1"] + net["b1"]
    h = torch.maximum(h, 0.05 * h)
    deep = h @ net["w2"] + net["b2"]
    mixed = state @ net["top_cross"] + deep @ net["top_deep"] + net["top_b"]
    return mixed + pairwise + first_order  # <- fm_half


def weighted_logloss(z, y, w, pos=2.5):  # <- positive_weight
    p = torch.sigmoid(z)
    nll = -(pos * y * torch.log(p) + (1 - y) * torch.log(1 - p))  # <- positive_weight
    return torch.dot(nll, w / w.sum())


accumulator = torch.full_like(table, 0.1)  # <- adagrad_start
momentum = {k: torch.zeros_like(v) for k, v in net.items()}
gen = torch.Generator().manual_seed(5)
losses = []
for _ in range(5):
    hot, sizes = multi_hot(gen, 8)
    numeric = torch.rand(8, NUM, generator=gen) * 5
    label = (torch.rand(8, generator=gen) < 0.3).float()
    importance = torch.rand(8, generator=gen) + 0.5
    loss = weighted_logloss(score(hot, sizes, numeric), label, importance)
    g_table, *g_net = torch.autograd.grad(loss, [table, *net.values()])
    with torch.no_grad():
        accumulator += g_table**2  # <- adagrad_start
        table -= 0.1 * g_table / (accumulator.sqrt() + 1e-6)  # <- adagrad_start
        for (name, w), g in zip(net.items(), g_net):
            momentum[name] = 0.8 * momentum[name] + g
            w -= 0.05 * momentum[name]
    losses.append(loss.item())
print(losses)
