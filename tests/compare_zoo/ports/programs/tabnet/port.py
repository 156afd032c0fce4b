# SPDX-License-Identifier: Apache-2.0
"""The same FT-Transformer as a program of arrays: a record of weights, categories as one-hot rows,
attention by einsum over named heads, the loss and AdamW written out.
"""

import sys

import numpy as np
import torch

NUMBERS, LEVELS, WIDTH, HEADS, DEPTH = 5, (4, 3, 6), 16, 4, 2
SIZE = WIDTH // HEADS
DECAYED = ("query", "key", "value", "merge", "expand", "shrink", "final_gain", "answer")


def normalise(x, gain, bias):
    variance, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * gain + bias


def tokens(w, numbers, one_hot):
    dense = torch.einsum("rn,nd->rnd", numbers, w["number_slope"]) + w["number_bias"]
    parts = one_hot.split(LEVELS, dim=1)
    tables = w["levels"].split(LEVELS, dim=0)  # <- offsets
    looked_up = [part @ table for part, table in zip(parts, tables)]  # <- offsets
    sparse = torch.stack(looked_up, dim=1) + w["level_bias"]  # <- offsets
    cls = w["cls"].expand(len(numbers), 1, WIDTH)
    return torch.cat([cls, dense, sparse], dim=1)


def attend(w, n, x):
    if f"{n}.before_gain" in w:
        x = normalise(x, w[f"{n}.before_gain"], w[f"{n}.before_bias"])  # <- unnormed
    reader = x[:, :1] if n == DEPTH - 1 else x
    q = torch.einsum("rti,ihs->rhts", reader, w[f"{n}.query"])  # <- heads
    k = torch.einsum("rti,ihs->rhts", x, w[f"{n}.key"])  # <- heads
    v = torch.einsum("rti,ihs->rhts", x, w[f"{n}.value"])  # <- heads
    q = q + w[f"{n}.query_bias"][:, None]
    k = k + w[f"{n}.key_bias"][:, None]
    v = v + w[f"{n}.value_bias"][:, None]
    scores = torch.einsum("rhqs,rhks->rhqk", q, k) / SIZE**0.5
    read = torch.einsum("rhqk,rhks->rqhs", scores.softmax(-1), v)
    return torch.einsum("rqhs,hso->rqo", read, w[f"{n}.merge"]) + w[f"{n}.merge_bias"]


def mlp(w, n, x):
    x = normalise(x, w[f"{n}.after_gain"], w[f"{n}.after_bias"])
    value, gate = (x @ w[f"{n}.expand"] + w[f"{n}.expand_bias"]).chunk(2, dim=-1)
    return (value * gate.clamp(min=0)) @ w[f"{n}.shrink"] + w[f"{n}.shrink_bias"]  # <- gated


def predict(w, numbers, one_hot):
    x = tokens(w, numbers, one_hot)
    for n in range(DEPTH):
        y = attend(w, n, x)
        x = x[:, : y.shape[1]] + y
        x = x + mlp(w, n, x)
    summary = normalise(x[:, 0], w["final_gain"], w["final_bias"]).relu()  # <- head
    return summary @ w["answer"] + w["answer_bias"]  # <- head


def smooth_l1(error, beta=0.5):
    size = error.abs()
    quadratic = size.square() / (2 * beta)  # <- beta
    return torch.where(size < beta, quadratic, size - beta / 2).mean()  # <- beta


def import_checkpoint(old):
    w = {
        "cls": old["tokenizer.weight"][0],
        "number_slope": old["tokenizer.weight"][1:],
        "number_bias": old["tokenizer.bias"][:NUMBERS],
        "levels": old["tokenizer.category_embeddings.weight"],
        "level_bias": old["tokenizer.bias"][NUMBERS:],
        "final_gain": old["last_normalization.weight"],
        "final_bias": old["last_normalization.bias"],
        "answer": old["head.weight"][0],
        "answer_bias": old["head.bias"],
    }
    for n in range(DEPTH):
        layer = {k.removeprefix(f"layers.{n}."): v for k, v in old.items() if f"layers.{n}." in k}
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
            weight = layer[f"attention.W_{letter}.weight"]
            w[f"{n}.{name}"] = weight.T.reshape(WIDTH, HEADS, SIZE)  # <- heads
            w[f"{n}.{name}_bias"] = layer[f"attention.W_{letter}.bias"].reshape(HEADS, SIZE)
        w[f"{n}.merge"] = layer["attention.W_out.weight"].T.reshape(HEADS, SIZE, WIDTH)
        w[f"{n}.merge_bias"] = layer["attention.W_out.bias"]
        for name, norm in (("before", "norm0"), ("after", "norm1")):
            if f"{norm}.weight" in layer:
                w[f"{n}.{name}_gain"] = layer[f"{norm}.weight"]
                w[f"{n}.{name}_bias"] = layer[f"{norm}.bias"]
        for name, linear in (("expand", "linear0"), ("shrink", "linear1")):
            w[f"{n}.{name}"] = layer[f"{linear}.weight"].T
            w[f"{n}.{name}_bias"] = layer[f"{linear}.bias"]
    return {name: tensor.clone().requires_grad_() for name, tensor in w.items()}


def adamw(w, gradients, state, step):
    for (name, p), g in zip(w.items(), gradients):
        m, v = state[name]
        m.copy_(0.9 * m + 0.1 * g)
        v.copy_(0.999 * v + 0.001 * g**2)
        decay = 0.1 if name.split(".")[-1] in DECAYED else 0.0  # <- untouched
        update = m / (1 - 0.9**step) / (torch.sqrt(v / (1 - 0.999**step)) + 1e-8)
        p.copy_(p - 0.01 * (update + decay * p))  # <- untouched


def table(rows=48):
    rng = np.random.default_rng(79)
    numbers = rng.lognormal(size=(rows, NUMBERS))
    categories = [rng.integers(0, levels, rows) for levels in LEVELS]
    target = numbers[:, 0] * categories[1] + numbers[:, 2] + rng.standard_normal(rows)
    one_hot = np.concatenate([np.eye(n)[c] for n, c in zip(LEVELS, categories)], axis=1)
    return (torch.from_numpy(a) for a in (np.log(1 + numbers), one_hot, target))


def standardise(column):
    return (column - column.mean(0)) / column.std(0, correction=0)  # <- spread


numbers, one_hot, target = table()
numbers, target, one_hot = (
    standardise(numbers).float(),
    standardise(target).float(),
    one_hot.float(),
)
w = import_checkpoint(torch.load(sys.argv[1]))
state = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in w.items()}
losses = []
batches = zip(numbers.split(16), one_hot.split(16), target.split(16))
for step, (some_numbers, some_levels, wanted) in enumerate(batches, start=1):
    loss = smooth_l1(predict(w, some_numbers, some_levels) - wanted)
    gradients = torch.autograd.grad(loss, list(w.values()))
    with torch.no_grad():
        adamw(w, gradients, state, step)
    losses.append(loss.item())
