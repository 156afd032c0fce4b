# SPDX-License-Identifier: Apache-2.0
"""Click model on one shared table: gathers with segment sums, upper-triangle dots, own Adagrad."""
import sys

import torch

CARDINALITY = (13, 7, 19)
FIELDS, WIDTH = len(CARDINALITY), 6


def upper_pairs(n):
    return torch.triu_indices(n, n, offset=1)


def from_lower_order(n):
    """Where, in the reference's row by row lower triangle, each of our pairs (i < j) lies."""
    i, j = upper_pairs(n)  # <- pair_order
    return j * (j - 1) // 2 + i  # <- pair_order


def import_weights(sd):
    w = {"table": torch.cat([sd[f"emb_l.{k}.weight"] for k in range(FIELDS)])}
    names = {"b0": "bot_l.0", "b1": "bot_l.2", "t0": "top_l.0", "t1": "top_l.2"}
    for ours, theirs in names.items():
        w[ours + "/kernel"] = sd[theirs + ".weight"].t().contiguous()
        w[ours + "/bias"] = sd[theirs + ".bias"].clone()
    dense_rows, pair_rows = w["t0/kernel"].split([WIDTH, FIELDS * (FIELDS + 1) // 2])
    pair_rows = pair_rows[from_lower_order(FIELDS + 1)]  # <- pair_order
    w["t0/kernel"] = torch.cat([dense_rows, pair_rows])  # <- pair_order
    return {k: v.requires_grad_() for k, v in w.items()}


def tower(w, name, x):
    x = torch.relu(x @ w[f"{name}0/kernel"] + w[f"{name}0/bias"])
    return x @ w[f"{name}1/kernel"] + w[f"{name}1/bias"]


def pooled(table, ids, ends, first_row):
    """Sum the rows of every example; ends[b] is one past the last id of example b."""
    place = torch.arange(len(ids))
    owner = torch.searchsorted(ends, place, right=True)  # <- segment_edge
    out = table.new_zeros(len(ends), WIDTH)
    return out.index_add(0, owner, table[ids + first_row])  # <- segment_edge


def score(w, counts, bags):
    numeric = torch.log1p(counts.float())  # <- dense_log
    bottom = torch.relu(tower(w, "b", numeric))  # <- dense_log
    vectors, first_row = [bottom], 0
    for size, (ids, ends) in zip(CARDINALITY, bags):
        vectors.append(pooled(w["table"], ids, ends, first_row))
        first_row += size
    stack = torch.stack(vectors)                                   # [fields + 1, batch, width]
    i, j = upper_pairs(len(vectors))  # <- pair_order
    dots = (stack[i] * stack[j]).sum(-1).t()  # <- pair_order
    return tower(w, "t", torch.cat([bottom, dots], dim=1)).squeeze(1)


def click_loss(logit, clicked):
    cost = logit.clamp(min=0) - logit * clicked + torch.log1p(torch.exp(-logit.abs()))
    importance = 0.5 + 1.5 * clicked  # <- row_weight
    return torch.dot(cost, importance) / importance.sum()  # <- row_weight


class AdaGrad:
    def __init__(self, weights, rate, start=0.1):  # <- accumulator_start
        self.rate = rate
        fresh = {k: torch.full_like(v, start) for k, v in weights.items()}  # <- accumulator_start
        self.memory = fresh

    def update(self, weights, grads):
        for (k, v), g in zip(weights.items(), grads):
            self.memory[k] += g * g  # <- accumulator_start
            v.data -= self.rate * g / (self.memory[k].sqrt() + 1e-8)  # <- accumulator_start


def read_batches(count, rows=8):
    rng = torch.Generator().manual_seed(2020)
    for _ in range(count):
        counts = torch.randint(0, 40, (rows, 5), generator=rng)
        bags = []
        for size in CARDINALITY:
            lens = torch.randint(0, 4, (rows,), generator=rng)
            ends = torch.cumsum(lens, dim=0)  # <- segment_edge
            bags.append((torch.randint(0, size, (int(ends[-1]),), generator=rng), ends))
        yield counts, bags, torch.rand(rows, 1, generator=rng).squeeze(1).lt(0.4).float()


weights = import_weights(torch.load(sys.argv[1], weights_only=True))
rule = AdaGrad(weights, rate=0.05)  # <- accumulator_start
losses = []
for counts, bags, clicked in read_batches(4):
    loss = click_loss(score(weights, counts, bags), clicked)
    rule.update(weights, torch.autograd.grad(loss, list(weights.values())))  # <- accumulator_start
    losses.append(float(loss.detach()))
print(losses)
