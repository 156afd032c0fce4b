# SPDX-License-Identifier: Apache-2.0
"""The same diffusion transformer in the manner of Flax: pure functions over a tree of kernels,
images with channels last, torch's fused attention, one Adam step over the tree.
"""

import math
import sys

import numpy as np
import torch
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu

SIDE, P, C, WIDTH, N_HEADS, N_STEPS = 8, 2, 3, 16, 2, 50
GRID = SIDE // P


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def norm(x):
    return layer_norm(x, x.shape[-1:], eps=1e-6)


def patches(images):
    """(batch, tokens, P * P * C), the channel last in a patch."""
    cut = images.reshape(-1, GRID, P, GRID, P, C).transpose(2, 3)
    return cut.reshape(-1, GRID * GRID, P * P * C)


def image(tokens):
    cut = tokens.reshape(-1, GRID, GRID, P, P, C).transpose(2, 3)  # <- pixels
    return cut.reshape(-1, SIDE, SIDE, C)  # <- pixels


def positions():
    rate = 10000.0 ** -(torch.arange(WIDTH // 4) / (WIDTH / 4))
    y, x = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
    angles = [axis.reshape(-1, 1) * rate for axis in (x, y)]  # <- rows
    return torch.cat([f(a) for a in angles for f in (torch.sin, torch.cos)], dim=-1)  # <- rows


def time_embedding(p, t):
    rate = torch.exp(-math.log(10000.0) * torch.arange(6) / 6)
    angle = t[:, None] * rate
    waves = torch.cat([angle.cos(), angle.sin()], dim=-1)  # <- cosine
    return dense(p["out"], silu(dense(p["in"], waves)))


def attention(p, x):
    q, k, v = dense(p["qkv"], x).unflatten(-1, (3, N_HEADS, -1)).permute(2, 0, 3, 1, 4)
    y = scaled_dot_product_attention(q, k, v)  # <- scaled
    return dense(p["out"], y.transpose(1, 2).flatten(2))


def adaptive(p, condition, count):
    """The parts of a modulation, in the order of the checkpoint, to be broadcast over tokens."""
    return dense(p, silu(condition))[:, None].chunk(count, dim=-1)


def block(p, x, condition):
    beta1, gamma1, alpha1, beta2, gamma2, alpha2 = adaptive(p["ada"], condition, 6)  # <- chunks
    y = norm(x) * (1 + gamma1) + beta1  # <- chunks
    x = x + alpha1 * attention(p["attention"], y)
    y = norm(x) * (1 + gamma2) + beta2
    y = dense(p["down"], gelu(dense(p["up"], y), approximate="tanh"))  # <- tanh
    return x + alpha2 * y


def apply(params, images, t, label):
    x = dense(params["patch"], patches(images)) + positions()  # <- rows
    condition = time_embedding(params["time"], t) + params["label"][label]
    for p in params["blocks"]:
        x = block(p, x, condition)
    beta, gamma = adaptive(params["last_ada"], condition, 2)
    return image(dense(params["last"], norm(x) * (1 + gamma) + beta))


def linear(old, name):
    return {"kernel": old[f"{name}.weight"].T, "bias": old[f"{name}.bias"]}


def convert(old):
    stem = old["x_embedder.weight"].permute(2, 3, 1, 0).reshape(P * P * C, WIDTH)
    blocks = []
    for n in range(2):
        at = f"blocks.{n}."
        blocks.append(
            {
                "ada": linear(old, f"{at}adaLN_modulation.1"),
                "attention": {
                    "qkv": linear(old, f"{at}attn.qkv"),
                    "out": linear(old, f"{at}attn.proj"),
                },
                "up": linear(old, f"{at}mlp.0"),
                "down": linear(old, f"{at}mlp.2"),
            }
        )
    return {
        "patch": {"kernel": stem, "bias": old["x_embedder.bias"]},
        "time": {
            "in": linear(old, "t_embedder.mlp.0"),
            "out": linear(old, "t_embedder.mlp.2"),
        },
        "label": old["y_embedder.weight"],
        "blocks": blocks,
        "last_ada": linear(old, "final_layer.adaLN_modulation.1"),
        "last": linear(old, "final_layer.linear"),
    }


def tree_map(f, tree, *others):
    if isinstance(tree, dict):
        return {k: tree_map(f, v, *(o[k] for o in others)) for k, v in tree.items()}
    if isinstance(tree, list):
        return [tree_map(f, *leaves) for leaves in zip(tree, *others)]
    return f(tree, *others)


def leaves_of(tree):
    found = []
    tree_map(found.append, tree)
    return found


params = tree_map(lambda w: w.clone().requires_grad_(), convert(torch.load(sys.argv[1])))
averages = tree_map(lambda w: w.detach().clone(), params)
weights = leaves_of(params)
adam = torch.optim.Adam(weights, lr=1e-3, foreach=True)
retained = np.cumprod(1.0 - np.linspace(1e-3, 0.2, N_STEPS))  # <- schedule
rng = np.random.default_rng(137)
losses = []
for _ in range(3):
    clean = torch.tensor(rng.normal(size=(4, C, SIDE, SIDE)).astype(np.float32)).movedim(1, -1)
    noise = torch.tensor(rng.normal(size=(4, C, SIDE, SIDE)).astype(np.float32)).movedim(1, -1)
    t = torch.tensor(rng.integers(0, N_STEPS, 4))
    label = torch.tensor(rng.integers(0, 6, 4))
    kept = torch.tensor(retained, dtype=torch.float32)[t][:, None, None, None]  # <- schedule
    noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
    loss = (apply(params, noisy, t, label) - noise).square().mean()
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights)):
        weight.grad = gradient
    adam.step()
    with torch.no_grad():
        averages = tree_map(lambda a, w: torch.lerp(a, w, 0.1), averages, params)  # <- average
        later = (apply(averages, noisy, t, label) - noise).square().mean()
    losses += [loss.item(), later.item()]
