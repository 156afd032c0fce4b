# SPDX-License-Identifier: Apache-2.0
"""The click model on one fused table: padded ids, count matrices, an optimizer by name."""
import sys
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

CARDINALITY = (24, 40, 10, 16)
BASE = [sum(CARDINALITY[:i]) for i in range(len(CARDINALITY))]
TOTAL, WIDTH, N_DENSE, ROWS, STEPS, MAX_LEN = sum(CARDINALITY), 8, 6, 24, 5, 5
POS = 2.5


def convert(path):
    old = torch.load(path)
    new = {"table": torch.cat([old[f"bags.{i}.weight"] for i in range(len(CARDINALITY))])}
    for mlp in ("bottom", "top"):
        for layer, index in enumerate((0, 2)):
            new[f"{mlp}{layer}.kernel"] = old[f"{mlp}.{index}.weight"].T.contiguous()
            new[f"{mlp}{layer}.bias"] = old[f"{mlp}.{index}.bias"]
    return {name: value.clone().requires_grad_(True) for name, value in new.items()}


def make_batches(count):
    rng = torch.Generator().manual_seed(77)
    likes = [torch.randn(n, generator=rng) for n in CARDINALITY]
    out = []
    for _ in range(count):
        numbers = torch.rand(ROWS, N_DENSE, generator=rng) ** 3 * 50
        numbers = (numbers + 1).log()  # <- dense_log
        appeal = numbers[:, 0] - 1.0
        padded = torch.full((ROWS, len(CARDINALITY), MAX_LEN), -1)
        for f, n in enumerate(CARDINALITY):
            sizes = torch.randint(1, MAX_LEN + 1, (ROWS,), generator=rng)
            ids = torch.randint(0, n, (int(sizes.sum()),), generator=rng)
            filled = torch.arange(MAX_LEN) < sizes[:, None]
            padded[:, f][filled] = ids + BASE[f]
            appeal = appeal + likes[f][padded[:, f, 0] - BASE[f]]
        clicked = torch.rand(ROWS, generator=rng) < torch.sigmoid(appeal)
        out.append((numbers, padded, clicked.to(torch.float32)))
    return out


def lookup(table, padded):
    """Mean of each bag by a product of its row counts with the table; the pad falls in a spare column."""
    spare = torch.where(padded < 0, TOTAL, padded)
    counts = F.one_hot(spare, TOTAL + 1)[..., :TOTAL].sum(2).to(table.dtype)
    counts = counts / counts.sum(-1, keepdim=True)  # <- bag_mean
    return counts @ table


def dense_stack(w, name, x, last_relu):
    x = torch.relu(x @ w[name + "0.kernel"] + w[name + "0.bias"])
    x = x @ w[name + "1.kernel"] + w[name + "1.bias"]
    return torch.relu(x) if last_relu else x


def predict(w, numbers, padded):
    bottom = dense_stack(w, "bottom", numbers, True)
    vectors = torch.cat([bottom[:, None], lookup(w["table"], padded)], 1)
    gram = torch.einsum("bid,bjd->bij", vectors, vectors)
    n = vectors.shape[1]
    order = [(i, j) for i in range(n) for j in range(i)]
    crossed = torch.stack([gram[:, i, j] for i, j in order], 1)
    return dense_stack(w, "top", torch.cat([bottom, crossed], 1), False)[:, 0]


def weighted_bce(logit, y):
    weight = 1 + (POS - 1) * y
    each = (1 - y) * logit + weight * F.softplus(-logit)
    return each.mean()  # <- pos_weight


@dataclass
class Adagrad:
    weights: dict
    sums: dict = field(default_factory=dict)
    t: int = 0

    def __post_init__(self):
        for name, w in self.weights.items():
            fused = name == "table"
            self.sums[name] = torch.zeros(len(w)) if fused else torch.full_like(w, 0.01, requires_grad=False)

    @torch.no_grad()
    def apply(self, grads):
        self.t += 1
        for name, g in grads.items():
            if name == "table":
                self.sums[name] += (g * g).mean(1)  # <- rowwise_mean
                self.weights[name] -= 0.05 * g / (self.sums[name].sqrt() + 1e-8)[:, None]
            else:
                self.sums[name] += g * g
                rate = 0.03 / (1 + (self.t - 1) * 0.1)  # <- decay_step
                self.weights[name] -= rate * g / (self.sums[name].sqrt() + 1e-8)


weights = convert(sys.argv[1])
optimizer = Adagrad(weights)
losses = []
for numbers, padded, clicked in make_batches(STEPS):
    value = weighted_bce(predict(weights, numbers, padded), clicked)
    grads = torch.autograd.grad(value, tuple(weights.values()))
    optimizer.apply(dict(zip(weights.keys(), grads)))
    losses.append(value.item())
print(losses)
