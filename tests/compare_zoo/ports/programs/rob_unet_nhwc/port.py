# SPDX-License-Identifier: Apache-2.0
"""The diffusion step as functions of nested dictionaries, channels last, in the style of a JAX code base."""
import math
import sys

import torch

torch.set_num_threads(1)

WIDTH, GROUPS, HORIZON, LR, DECAY = 16, 4, 50, 3e-3, 0.01


def nest(path):
    """Checkpoint entries as params[module][leaf]; convolutions as (kh, kw, in, out), dense kernels as (in, out)."""
    params = {}
    for name, value in torch.load(path).items():
        module, leaf = name.rsplit(".", 1)
        if value.ndim == 4:
            value = value.permute(2, 3, 1, 0)
        elif value.ndim == 2:
            value = value.T
        params.setdefault(module, {})[leaf] = value.contiguous()
    return params


def tree_map(fn, *trees):
    if isinstance(trees[0], dict):
        return {k: tree_map(fn, *(t[k] for t in trees)) for k in trees[0]}
    return fn(*trees)


def tree_leaves(tree):
    return [leaf for v in tree.values() for leaf in tree_leaves(v)] if isinstance(tree, dict) else [tree]


def swish(x):
    return x * torch.sigmoid(x)


def dense(p, x):
    return x @ p["weight"] + p["bias"]


def conv(p, x, stride=1):
    """Shifted views times the slices of the kernel, summed ("SAME" as the checkpoint has it: one pixel each side)."""
    kernel = p["weight"]
    side, _, height, width = kernel.shape[0], kernel.shape[1], x.shape[1], x.shape[2]
    edge = side // 2
    x = torch.nn.functional.pad(x, (0, 0, edge, edge, edge, edge))
    total = p["bias"]
    for i in range(side):
        for j in range(side):
            total = total + x[:, i:i + height:stride, j:j + width:stride] @ kernel[i, j]
    return total


def group_norm(p, x):
    b, h, w, c = x.shape
    split = x.view(b, h * w, GROUPS, c // GROUPS)  # <- group_layout
    mean = split.mean((1, 3), keepdim=True)  # <- group_layout
    var = (split - mean).square().mean((1, 3), keepdim=True)  # <- group_layout
    return ((split - mean) * torch.rsqrt(var + 1e-5)).view(b, h, w, c) * p["weight"] + p["bias"]


def res_block(params, name, x, temb):
    h = conv(params[name + ".conv1"], swish(group_norm(params[name + ".norm1"], x)))
    h = h + dense(params[name + ".emb"], swish(temb))[:, None, None]
    h = conv(params[name + ".conv2"], swish(group_norm(params[name + ".norm2"], h)))
    return h + (conv(params[name + ".skip"], x) if name + ".skip" in params else x)


def time_features(params, t):
    half = WIDTH // 2
    rates = 1000.0 ** -(torch.arange(half) / (half - 1))  # <- freq_spacing
    phase = torch.outer(t.float(), rates)  # <- freq_spacing
    h = dense(params["time.mlp.0"], torch.cat([phase.sin(), phase.cos()], -1))
    return dense(params["time.mlp.2"], swish(h))


def unet(params, x, condition, t):
    temb = time_features(params, t)
    skip = res_block(params, "enc", conv(params["stem"], torch.cat([x, condition], -1)), temb)
    h = res_block(params, "mid", conv(params["down"], skip, stride=2), temb)
    h = conv(params["up"], h.repeat_interleave(2, 1).repeat_interleave(2, 2))
    h = res_block(params, "dec", torch.cat([h, skip], -1), temb)
    return conv(params["out"], swish(h))


def signal_table():
    """Cumulative alphas of the cosine schedule, for t = 0 .. HORIZON - 1."""
    def f(u):
        return math.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2

    table, product = [], 1.0
    for n in range(HORIZON):
        product *= 1 - min(0.999, 1 - f((n + 1) / HORIZON) / f(n / HORIZON))
        table.append(product)  # <- alpha_index
    return torch.tensor(table, dtype=torch.float32)


def loss_fn(params, ema, table, image, noise, t):
    signal = table[t][:, None, None, None]  # <- alpha_index
    root, sigma = signal.sqrt(), (1 - signal).sqrt()
    noisy = root * image + sigma * noise
    guess = unet(ema, noisy, torch.zeros_like(noisy), t)
    clean = torch.clip((noisy - sigma * guess) / root, -1, 1)
    error = (unet(params, noisy, clean, t) - noise).square().flatten(1).mean(1)
    snr = signal.flatten() / (1 - signal.flatten())
    return (torch.minimum(5.0 / snr, torch.ones(())) * error).mean()  # <- snr_weight


def adamw(grads, params, mu, nu, count):
    mu = tree_map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
    nu = tree_map(lambda n, g: 0.999 * n + 0.001 * g * g, nu, grads)

    def move(p, m, n):
        direction = m / (1 - 0.9 ** count) / ((n / (1 - 0.999 ** count)).sqrt() + 1e-8)
        return p - LR * (direction + DECAY * p)

    return tree_map(move, params, mu, nu), mu, nu


def train_step(state, batch, table):
    params = tree_map(lambda p: p.detach().requires_grad_(), state["params"])
    loss = loss_fn(params, state["ema"], table, *batch)
    leaves = iter(torch.autograd.grad(loss, tree_leaves(params)))
    grads = tree_map(lambda _: next(leaves), params)
    with torch.no_grad():
        count = state["count"] + 1
        new, mu, nu = adamw(grads, params, state["mu"], state["nu"], count)
        rate = min(0.95, (1 + count) / (4 + count))  # <- ema_warmup
        ema = tree_map(lambda e, p: rate * e + (1 - rate) * p, state["ema"], new)  # <- ema_warmup
    return {"params": new, "ema": ema, "mu": mu, "nu": nu, "count": count}, loss.item()


def main(path, steps=5, shape=(4, 1, 8, 8)):
    params = nest(path)
    zeros = tree_map(torch.zeros_like, params)
    state = {"params": params, "ema": params, "mu": zeros, "nu": zeros, "count": 0}
    table, gen, history = signal_table(), torch.Generator().manual_seed(9), []
    for _ in range(steps):
        image = (2 * torch.rand(shape, generator=gen) - 1).movedim(1, -1)
        t = torch.randint(0, HORIZON - 1, shape[:1], generator=gen)
        noise = torch.randn(shape, generator=gen).movedim(1, -1)
        state, loss = train_step(state, (image, noise, t), table)
        history.append(loss)
    return history


losses = main(sys.argv[1])
print(losses)
