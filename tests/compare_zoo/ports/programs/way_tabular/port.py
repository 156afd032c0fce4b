# SPDX-License-Identifier: Apache-2.0
"""The table's transformer in matrices only, in the idiom of older code (addmm, baddbmm, one-hot
products, columns before rows), whole batches, Lion and the average on one flat vector.
"""

import sys

import torch
import torch.nn.functional as F

N_NUM, SIZES, D, N_HEADS, ROWS = 4, [3, 5, 4], 16, 4, 12
TAU = 6.283185307179586


class Flat:
    """All parameters as views into one vector, with a rate for every number."""

    def __init__(self, named):
        self.shapes = {name: t.shape for name, t in named.items()}
        self.vector = torch.cat([t.reshape(-1) for t in named.values()])

    def views(self, vector):
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = vector.split(sizes)
        return {n: part.view(s) for (n, s), part in zip(self.shapes.items(), parts)}

    def each(self, value_of):
        return torch.cat([torch.full((s.numel(),), value_of(n)) for n, s in self.shapes.items()])


def norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def affine(x, w, name):
    return torch.addmm(w[f"{name}.bias"], x, w[f"{name}.weight"].t())


def one_hots(x_cat):
    """One long row of zeros and three ones for each category column."""
    start, out = 0, []
    for j, size in enumerate(SIZES):
        hot = torch.zeros(x_cat.shape[0], sum(SIZES))
        hot.scatter_(1, x_cat[:, j : j + 1] + start, 1.0)  # <- offsets
        out.append(hot)
        start += size  # <- offsets
    return torch.stack(out)


def tokens(w, x_num, x_cat):
    """(columns, rows, D)."""
    x = x_num.t().unsqueeze(-1)
    phase = x * w["tokenizer.frequencies"].unsqueeze(1) * TAU
    waves = torch.cat((torch.cos(phase), torch.sin(phase)), -1)
    numbers = torch.bmm(waves, w["tokenizer.weight"])
    categories = one_hots(x_cat) @ w["tokenizer.category_embeddings.weight"]  # <- offsets
    cls = w["tokenizer.cls"].expand(1, x_num.shape[0], D)
    return torch.cat((categories, numbers, cls))


def attend(x, w, at):
    columns, rows, _ = x.shape
    kernel, bias = w[f"{at}.in_proj_weight"], w[f"{at}.in_proj_bias"]
    q, k, v = torch.addmm(bias, x.reshape(-1, D), kernel.t()).chunk(3, 1)
    q, k, v = (t.reshape(columns, rows * N_HEADS, -1).transpose(0, 1) for t in (q, k, v))
    empty = q.new_empty(rows * N_HEADS, columns, columns)
    share = q.shape[-1] ** -0.5
    scores = torch.baddbmm(empty, q, k.transpose(1, 2), beta=0, alpha=share)  # <- scale_last
    mixed = torch.bmm(F.softmax(scores, 2), v).transpose(0, 1)  # <- scale_last
    return affine(mixed.reshape(-1, D), w, f"{at}.out_proj").view(x.shape)


def network(w, x_num, x_cat):
    x = tokens(w, x_num, x_cat)
    for i in range(3):
        y = norm(x, w, f"layers.{i}.norm0") if i else x
        x = x + attend(y, w, f"layers.{i}.attention")
        if i == 2:
            x = x[-1:]  # only the last token is read from here on
        y = affine(norm(x, w, f"layers.{i}.norm1").reshape(-1, D), w, f"layers.{i}.linear0")
        y = y[:, :20] * y[:, 20:].clamp(min=0)
        x = x + affine(y, w, f"layers.{i}.linear1").view(x.shape)
    x = norm(x[0], w, "norm").clamp(min=0)
    return affine(x, w, "price")[:, 0], affine(x, w, "kind")


def objective(w, x_num, x_cat, price, kind):
    guess, logits = network(w, x_num, x_cat)
    squares = (guess - price).pow(2).sum() / len(price)
    surprise = F.nll_loss(F.log_softmax(logits, 1), kind)
    s_price, s_kind = w["log_vars"].unbind()
    value = squares / (2 * torch.exp(s_price)) + s_price / 2  # <- uncertainty
    return value + surprise / torch.exp(s_kind) + s_kind / 2


def level(name):
    """How many stages lie above this parameter."""
    if name.startswith("tokenizer"):
        return 4
    return 3 - int(name.split(".")[1]) if name.startswith("layers") else 0  # <- layer_decay


def read(rng):
    x_num = torch.rand(ROWS, N_NUM, generator=rng) * 2 - 1
    x_cat = torch.stack([torch.randint(n, (ROWS,), generator=rng) for n in SIZES], 1)
    price = 20 + 5 * x_num.sum(1) * (1 + x_cat[:, 0]) + x_cat[:, 1]
    kind = torch.remainder(x_cat[:, 2] + x_num[:, 0].gt(0).long(), 3)
    return x_num, x_cat, (price - 22.0) / 8.0, kind


state = torch.load(sys.argv[1])
state.pop("tokenizer.category_offsets")
flat = Flat(state)
vector = flat.vector
average = vector.clone()
memory = torch.zeros_like(vector)
rates = flat.each(lambda name: 2e-3 * 0.6 ** level(name))  # <- layer_decay
rng = torch.Generator().manual_seed(82)
losses = []
for step in range(1, 6):
    data = read(rng)
    vector.requires_grad_()
    loss = objective(flat.views(vector), *data)
    (slope,) = torch.autograd.grad(loss, [vector])
    vector = vector.detach()
    direction = torch.sign(0.9 * memory + 0.1 * slope)  # <- lion
    vector = vector * (1 - 0.5 * rates) - rates * direction  # <- layer_decay lion
    memory = 0.99 * memory + 0.01 * slope  # <- lion
    keep = min(0.9, (1 + step) / (10 + step))  # <- averaged
    average = torch.lerp(vector, average, keep)  # <- averaged
    losses.append(loss.item())
losses.append(objective(flat.views(average), *read(rng)).item())  # <- averaged
