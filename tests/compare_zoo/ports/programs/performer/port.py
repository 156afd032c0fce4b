# SPDX-License-Identifier: Apache-2.0
"""The same Performer as functions with heads beside time: queries, keys and values from one
projection, numerator and denominator in one product, the loss over picked places.
"""

import sys

import numpy as np
import torch
from torch.nn.functional import gelu, layer_norm

VOCAB, BLANK, WIDTH, N_HEADS, N_LAYERS = 24, 23, 16, 2, 2
HEAD_WIDTH = WIDTH // N_HEADS
STABILISER = 1e-4


def positive_features(x, directions, axes):
    """(batch, time, heads, width) -> (batch, time, heads, features); the common factor cancels."""
    x = x / HEAD_WIDTH**0.25  # <- quarter
    projected = torch.einsum("bthd,fd->bthf", x, directions)  # <- quarter
    half_square = x.square().sum(-1, keepdim=True) / 2  # <- diagonal quarter
    with torch.no_grad():
        offset = projected.amax(axes, keepdim=True)  # <- largest
    return (projected - half_square - offset).exp() + STABILISER  # <- largest diagonal


def attention(x, w, directions):
    batch, time, _ = x.shape
    qkv = (x @ w["qkv"]).view(batch, time, 3, N_HEADS, HEAD_WIDTH)
    q, k, v = qkv.unbind(2)
    q = positive_features(q, directions, axes=(3,))
    k = positive_features(k, directions, axes=(1, 3))
    ones = v.new_ones(batch, time, N_HEADS, 1)
    summary = torch.einsum("bshf,bshe->bhfe", k, torch.cat([v, ones], dim=-1))  # <- denominator
    both = torch.einsum("bthf,bhfe->bthe", q, summary)  # <- denominator
    read = both[..., :-1] / both[..., -1:]  # <- denominator
    return read.reshape(batch, time, WIDTH) @ w["o"] + w["o_bias"]


def norm(x, w):
    return layer_norm(x, (WIDTH,), w["g"], w["b"], eps=1e-5)


def forward(w, tokens):
    x = w["tokens"][tokens] + w["places"][: tokens.shape[1]]
    for layer in w["layers"]:
        y = norm(x, layer["norm_a"])
        x = x + attention(y, layer["attention"], layer["directions"])  # <- residual
        inner = norm(x, layer["norm_f"]) @ layer["up"] + layer["up_bias"]
        x = x + gelu(inner) @ layer["down"] + layer["down_bias"]
    return torch.einsum("btd,vd->btv", norm(x, w["norm"]), w["tokens"])


def port_weights(old):
    def both(name):
        return {"g": old[f"{name}.weight"], "b": old[f"{name}.bias"]}

    def layer(n):
        a, f = f"layers.{n}.0", f"layers.{n}.1"
        parts = [old[f"{a}.fn.to_{kind}.weight"] for kind in "qkv"]
        return {
            "norm_a": both(f"{a}.norm"),
            "norm_f": both(f"{f}.norm"),
            "directions": old[f"{a}.fn.fast_attention.projection_matrix"],
            "attention": {
                "qkv": torch.cat(parts).T,
                "o": old[f"{a}.fn.to_out.weight"].T,
                "o_bias": old[f"{a}.fn.to_out.bias"],
            },
            "up": old[f"{f}.fn.w1.weight"].T,
            "up_bias": old[f"{f}.fn.w1.bias"],
            "down": old[f"{f}.fn.w2.weight"].T,
            "down_bias": old[f"{f}.fn.w2.bias"],
        }

    return {
        "tokens": old["token_emb.weight"],
        "places": old["pos_emb.weight"],
        "layers": [layer(n) for n in range(N_LAYERS)],
        "norm": both("norm"),
    }


def learned(tree, name=""):
    """The tensors that are trained: all but the random directions."""
    if isinstance(tree, torch.Tensor):
        return [] if name == "directions" else [tree.requires_grad_()]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [w for key, child in items for w in learned(child, key)]


def adam(weights, gradients, state, count):
    for w, g in zip(weights, gradients):
        m, v = state.setdefault(w, (torch.zeros_like(w), torch.zeros_like(w)))
        m.mul_(0.9).add_(0.1 * g)
        v.mul_(0.98).add_(0.02 * g * g)  # <- second
        unbiased = v / (1 - 0.98**count)  # <- second
        w -= 0.01 * m / (1 - 0.9**count) / (unbiased.sqrt() + 1e-9)  # noqa: PLW2901  # <- second


w = port_weights(torch.load(sys.argv[1]))
weights = learned(w)
state = {}
rng = np.random.default_rng(47)
losses = []
for count in (1, 2, 3):
    truth = torch.tensor(rng.integers(0, BLANK, (4, 12)))
    hidden = torch.tensor(rng.random((4, 12)) < 0.3)
    scores = forward(w, torch.where(hidden, BLANK, truth))
    wanted = scores.log_softmax(-1).gather(-1, truth.unsqueeze(-1)).squeeze(-1)
    loss = -wanted[hidden].mean()  # <- counted
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        adam(weights, gradients, state, count)
    losses.append(loss.item())
