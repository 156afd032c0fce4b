# SPDX-License-Identifier: Apache-2.0
"""The same two towers in the idiom of TensorFlow's recommenders: named variables, dense layers as
kernels, a masked mean for the bag, a mask of duplicates added, optimizers with slots.
"""

import sys

import numpy as np
import torch

N_USERS, N_ITEMS, N_KINDS, N_BATCH, WIDTH = 17, 24, 7, 8, 6
LOWEST = -1e9


def dense(v, name, x, activation=None):
    y = x @ v[f"{name}/kernel"] + v[f"{name}/bias"]  # <- active
    return y if activation is None else activation(y)  # <- active


def l2_normalize(x, axis):
    return x * torch.rsqrt(x.square().sum(axis, keepdim=True).clamp(min=1e-24))  # <- unit


def masked_mean(table, ids):
    """Bags of ids, 0 for nothing."""
    there = (ids != 0).float().unsqueeze(-1)
    return (table[ids] * there).sum(1) / there.sum(1)  # <- bag


def query(v, user, history):
    bag = masked_mean(v["history/table"], history)
    first = torch.cat([v["user/table"][user], bag], dim=-1)
    x = first
    for n in range(2):
        x = first * dense(v, f"cross{n}", x) + x  # <- crossed
    x = dense(v, "query1", x, torch.relu)
    return l2_normalize(dense(v, "query2", x), axis=-1)  # <- unit


def candidate(v, item, kind, maker):
    x = torch.cat(
        [v["item/table"][item], v["category/table"][kind], v["brand/table"][maker]], -1
    )  # <- table
    x = dense(v, "candidate1", x, torch.relu)  # <- active
    return l2_normalize(dense(v, "candidate2", x), axis=-1)  # <- active


def retrieval_loss(queries, candidates, probability, ids):
    scores = torch.einsum("qd,cd->qc", queries, candidates) / 0.2  # <- warm
    scores = scores - probability.log()  # <- corrected
    same = (ids[:, None] == ids).float()
    duplicates = same - torch.eye(N_BATCH)  # <- hits
    scores = scores + duplicates * LOWEST  # <- hits
    return torch.mean(torch.logsumexp(scores, dim=-1) - scores.diagonal())  # <- hits


class Stream:
    """Two tables of the stream: when an item came last, and after how many steps it comes."""

    def __init__(self):
        self.when, self.every = torch.zeros(N_ITEMS), torch.full((N_ITEMS,), 4.0)

    def __call__(self, items, step):
        waited = step - self.when.index_select(0, items)  # <- seen
        every = torch.lerp(self.every.index_select(0, items), waited, 0.3)
        self.every = self.every.index_copy(0, items, every)
        self.when = self.when.index_fill(0, items, step)  # <- seen
        return self.every.index_select(0, items).reciprocal()


class Adagrad:
    def __init__(self, variables):
        self.variables = variables
        self.slots = [torch.full_like(w, 0.1) for w in variables]  # <- accumulator

    @torch.no_grad()
    def apply(self, gradients):
        for w, g, slot in zip(self.variables, gradients, self.slots):
            slot.addcmul_(g, g)  # <- accumulator
            w.sub_(0.1 * g / (slot.sqrt() + 1e-7))  # <- accumulator


class Adam:
    def __init__(self, variables):
        self.variables, self.step = variables, 0
        self.slots = [(torch.zeros_like(w), torch.zeros_like(w)) for w in variables]

    @torch.no_grad()
    def apply(self, gradients):
        self.step += 1
        for w, g, (m, v) in zip(self.variables, gradients, self.slots):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            corrected = (v / (1 - 0.999**self.step)).sqrt()
            w.sub_(5e-3 / (1 - 0.9**self.step) * m / (corrected + 1e-7))


def restored(old):
    names = {"query1": "user_tower.mlp.0", "query2": "user_tower.mlp.2"}
    names |= {"candidate1": "item_tower.mlp.0", "candidate2": "item_tower.mlp.2"}
    names |= {f"cross{n}": f"user_tower.cross.{n}.linear" for n in range(2)}
    v = {f"{mine}/kernel": old[f"{theirs}.weight"].T for mine, theirs in names.items()}
    v |= {f"{mine}/bias": old[f"{theirs}.bias"] for mine, theirs in names.items()}
    for tower, tables in (("user", ("user", "history")), ("item", ("item", "category", "brand"))):
        v |= {f"{name}/table": old[f"{tower}_tower.{name}.weight"] for name in tables}
    return {name: w.clone().requires_grad_() for name, w in v.items()}


v = restored(torch.load(sys.argv[1]))
tables = [w for name, w in v.items() if name.endswith("table")]
others = [w for name, w in v.items() if not name.endswith("table")]
sparse, plain, frequency = Adagrad(tables), Adam(others), Stream()
rng = np.random.default_rng(197)
kinds, makers = (torch.tensor(rng.integers(0, N_KINDS, N_ITEMS)) for _ in range(2))
losses = []
for step in range(1, 5):
    user = torch.tensor(rng.integers(0, N_USERS, N_BATCH))
    history = torch.tensor(rng.integers(1, N_ITEMS, (N_BATCH, 5)))
    lengths = torch.tensor(rng.integers(1, 6, (N_BATCH, 1)))
    history = torch.where(torch.arange(5) < lengths, history, 0)
    item = torch.tensor(rng.integers(1, N_ITEMS, N_BATCH))
    probability = frequency(item, step)
    candidates = candidate(v, item, kinds[item], makers[item])
    loss = retrieval_loss(query(v, user, history), candidates, probability, item)
    gradients = torch.autograd.grad(loss, tables + others, materialize_grads=True)
    sparse.apply(gradients[: len(tables)])
    plain.apply(gradients[len(tables) :])
    losses.append(loss.item())
