# SPDX-License-Identifier: Apache-2.0
"""The interest network on ragged histories: one table for all fields, values beside row splits,
index_add for the interest, the attention unit's first layer in parts, Dice and Adam by hand.
"""

import sys

import torch
import torch.nn.functional as F

SIZES = {"user": 14, "item": 40, "cate": 7}
START = {"user": 0, "item": 14, "cate": 14 + 40}  # <- offsets
DIM, ROWS, STEPS = 8, 12, 4


class Variables:
    """Trainable arrays, kernels [in, out] as in Keras, and moving statistics."""

    def __init__(self, path):
        old = torch.load(path)
        table = torch.cat([old[f"{field}_emb.weight"] for field in SIZES])
        by_query, by_fact, by_gap, by_product = old["attention.mlp.0.weight"].t().split(2 * DIM)
        self.train = {"table": table}
        self.train["att/query"], self.train["att/fact"] = by_query, by_fact
        self.train["att/gap"], self.train["att/product"] = by_gap, by_product
        self.train["att/bias"] = old["attention.mlp.0.bias"]
        self.train["att/slope"] = old["attention.mlp.1.weight"]
        self.train["att/out"] = old["attention.mlp.2.weight"].t()
        self.train["att/out_bias"] = old["attention.mlp.2.bias"]
        for layer in ("fc1", "fc2", "out"):
            self.train[f"{layer}/kernel"] = old[f"{layer}.weight"].t()
            self.train[f"{layer}/bias"] = old[f"{layer}.bias"]
        self.moving = {}
        for n in ("1", "2"):
            self.train[f"dice{n}/alpha"] = old[f"dice{n}.alpha"]
            for kind in ("mean", "var"):
                self.moving[f"dice{n}/{kind}"] = old[f"dice{n}.bn.running_{kind}"].clone()
        self.train = {k: v.clone().requires_grad_() for k, v in self.train.items()}


def dice(var, name, x, training):
    mean, var_ = var.moving[f"{name}/mean"], var.moving[f"{name}/var"]
    if training:
        n = len(x)
        batch_var, batch_mean = torch.var_mean(x, 0, correction=0)
        mean.lerp_(batch_mean.detach(), 0.1)  # <- running
        var_.lerp_(batch_var.detach() * (n / (n - 1)), 0.1)  # <- running
        mean, var_ = batch_mean, batch_var
    gate = torch.sigmoid((x - mean) / (var_ + 1e-3).sqrt())  # <- dice_eps running
    alpha = var.train[f"{name}/alpha"]
    return torch.lerp(alpha * x, x, gate)


def rows(var, field, ids):
    return var.train["table"].index_select(0, ids + START[field])  # <- offsets


def goods(var, ids, cate_of):
    return torch.hstack((rows(var, "item", ids), rows(var, "cate", cate_of[ids])))  # <- offsets


def logits(var, batch, cate_of, training):
    w = var.train
    user, item, values, segments = batch
    query, facts = goods(var, item, cate_of), goods(var, values, cate_of)
    # the queries' share of the hidden layer is made once a row, not once a click
    shared = (query @ (w["att/query"] + w["att/gap"]) + w["att/bias"])[segments]  # <- segment
    hidden = shared + facts @ (w["att/fact"] - w["att/gap"])
    hidden = hidden + (query[segments] * facts) @ w["att/product"]  # <- segment
    hidden = torch.where(hidden > 0, hidden, w["att/slope"] * hidden)
    weight = hidden @ w["att/out"] + w["att/out_bias"]
    interest = torch.zeros(ROWS, 2 * DIM).index_add(0, segments, weight * facts)  # <- segment
    x = torch.hstack((rows(var, "user", user), query, interest))
    x = dice(var, "dice1", x @ w["fc1/kernel"] + w["fc1/bias"], training)
    x = dice(var, "dice2", x @ w["fc2/kernel"] + w["fc2/bias"], training)
    return (x @ w["out/kernel"] + w["out/bias"])[:, 0]


def read(rng):
    user, item = (torch.randint(0, SIZES[k], (ROWS,), generator=rng) for k in ("user", "item"))
    padded = torch.randint(0, SIZES["item"], (ROWS, 6), generator=rng)
    count = torch.randint(1, 7, (ROWS,), generator=rng)
    label = torch.randint(0, 2, (ROWS,), generator=rng)
    values = torch.cat([row[:n] for row, n in zip(padded, count.tolist())])
    segments = torch.repeat_interleave(torch.arange(ROWS), count)  # <- segment
    return (user, item, values, segments), label


def bce(z, label):
    return F.softplus(torch.where(label == 1, -z, z)).mean()


var = Variables(sys.argv[1])
rng = torch.Generator().manual_seed(22)
cate_of = torch.randint(0, SIZES["cate"], (SIZES["item"],), generator=rng)
m, v = ({k: torch.zeros_like(t) for k, t in var.train.items()} for _ in range(2))
losses = []
for step in range(STEPS):
    batch, label = read(rng)
    loss = bce(logits(var, batch, cate_of, training=True), label)
    grads = torch.autograd.grad(loss, list(var.train.values()))
    lr = 0.02 * 0.7**step  # <- schedule
    with torch.no_grad():
        for (k, p), g in zip(var.train.items(), grads):
            grad = g + 0.01 * p if k == "table" else g
            m[k] += (grad - m[k]) * 0.1
            v[k] += (grad * grad - v[k]) * 0.001
            m_hat, v_hat = m[k] / (1 - 0.9 ** (step + 1)), v[k] / (1 - 0.999 ** (step + 1))
            p.sub_(lr * m_hat / (v_hat.sqrt() + 1e-3))  # <- schedule
    losses.append(loss.item())
with torch.no_grad():
    batch, label = read(rng)
    losses.append(bce(logits(var, batch, cate_of, training=False), label).item())
