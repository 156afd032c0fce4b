# SPDX-License-Identifier: Apache-2.0
"""The click model as TensorFlow writes it: one table with offsets for all fields, kernels of
[in, out], FM by the square of the sum, batch norm and Adagrad by hand.
"""

import sys

import torch

SIZES = [7, 11, 5]
OFFSETS = torch.tensor([0, *SIZES[:-1]]).cumsum(0)  # <- offsets
ITEMS, N_DENSE, BATCH, STEPS = 13, 4, 12, 5


def import_variables(path):
    saved = torch.load(path)
    variables = {
        "table": torch.cat([saved[f"tables.{i}.weight"] for i in range(3)]),
        "wide": torch.cat([saved[f"linear.{i}.weight"] for i in range(3)]).squeeze(1),
        "history": saved["history.weight"][1:],  # nothing is kept for the padding
        "dense/kernel": saved["dense.weight"].t(),
        "dense/bias": saved["dense.bias"],
        "bn/gamma": saved["deep.1.weight"],
        "bn/beta": saved["deep.1.bias"],
        "prelu/alpha": saved["deep.4.weight"],
        "bias": saved["bias"],
    }
    for new, old in enumerate((0, 3, 5)):
        variables[f"fc{new}/kernel"] = saved[f"deep.{old}.weight"].t()
        variables[f"fc{new}/bias"] = saved[f"deep.{old}.bias"]
    moving = {"mean": saved["deep.1.running_mean"], "variance": saved["deep.1.running_var"]}
    return {k: v.contiguous().clone().requires_grad_() for k, v in variables.items()}, moving


def batch_norm(x, v, moving, training):
    if training:
        mean = x.mean(0)
        variance = (x * x).mean(0) - mean * mean
        with torch.no_grad():
            n = len(x)
            moving["mean"] = 0.9 * moving["mean"] + 0.1 * mean  # <- statistics
            unbiased = variance * n / (n - 1)
            moving["variance"] = 0.9 * moving["variance"] + 0.1 * unbiased  # <- statistics
    else:
        mean, variance = moving["mean"], moving["variance"]  # <- statistics
    scale = v["bn/gamma"] / torch.sqrt(variance + 1e-5)
    return x * scale + (v["bn/beta"] - mean * scale)  # <- statistics


def pooled(v, items):
    """The mean of the items of a history, by a matrix of counts."""
    counts = torch.nn.functional.one_hot(items, ITEMS)[..., 1:].sum(1).float()  # <- bag
    return (counts @ v["history"]) / counts.sum(1, keepdim=True)  # <- bag


def logits(v, moving, batch, training):
    rows = batch["ids"] + OFFSETS  # <- offsets
    fields = torch.index_select(v["table"], 0, rows.flatten()).view(BATCH, -1, 6)  # <- offsets
    numeric = torch.addmm(v["dense/bias"], torch.log(1 + batch["numbers"]), v["dense/kernel"])
    extra = torch.stack((pooled(v, batch["items"]), numeric), 1)
    stacked = torch.cat((fields, extra), 1)
    wide = v["wide"][rows].sum(1)  # <- offsets
    of_sum = stacked.sum(1).square()
    of_squares = stacked.square().sum(1)
    crossed = 0.5 * (of_sum - of_squares).sum(1)  # <- square
    h = stacked.reshape(BATCH, -1) @ v["fc0/kernel"] + v["fc0/bias"]
    h = batch_norm(h, v, moving, training).clamp_min(0)
    h = h @ v["fc1/kernel"] + v["fc1/bias"]
    h = h.relu() - v["prelu/alpha"] * (-h).relu()
    deep = h @ v["fc2/kernel"] + v["fc2/bias"]
    return wide + crossed + deep[:, 0] + v["bias"]  # <- square


def weighted_loss(z, y):
    """tf.nn.weighted_cross_entropy_with_logits"""
    weight = 1 + 1.5 * y
    return torch.mean((1 - y) * z + weight * (torch.log1p(torch.exp(-z.abs())) + (-z).relu()))


def dataset():
    rng = torch.Generator().manual_seed(112)
    for _ in range(STEPS):
        ids = torch.stack([torch.randint(n, (BATCH,), generator=rng) for n in SIZES], dim=-1)
        items = torch.randint(1, ITEMS, (BATCH, 5), generator=rng)
        keep = torch.arange(5)[None] < torch.randint(1, 6, (BATCH, 1), generator=rng)
        numbers = torch.rand(BATCH, N_DENSE, generator=rng) * 20
        y = torch.lt(torch.rand(BATCH, generator=rng), 0.3).float()
        yield {"ids": ids, "items": items * keep, "numbers": numbers}, y


variables, moving = import_variables(sys.argv[1])
accumulators = {k: torch.full_like(p, 0.1) for k, p in variables.items()}  # <- accumulator
losses = []
for step, (batch, y) in enumerate(dataset()):
    training = step < STEPS - 1
    loss = weighted_loss(logits(variables, moving, batch, training), y)
    losses.append(float(loss.detach()))
    if not training:
        break
    gradients = torch.autograd.grad(loss, tuple(variables.values()))
    for (name, p), g in zip(variables.items(), gradients):
        accumulators[name] += g * g  # <- accumulator
        p.data -= 0.05 * g / (accumulators[name].sqrt() + 1e-7)  # <- accumulator
