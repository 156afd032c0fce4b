# SPDX-License-Identifier: Apache-2.0
"""The same RetNet in its recurrent form, token by token with a state a head: functions over a
tree of weights, one fused projection, rotation of halves, AdamW written out.
"""

import sys

import numpy as np
import torch

N_VOCAB, WIDTH, N_HEAD, DEPTH = 29, 16, 2, 2
HEAD = WIDTH // N_HEAD
EPS = 1e-6


def rms(x, gain=None):
    y = x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + EPS)  # <- perhead
    return y if gain is None else y * gain


def rotate(x, position):
    """(batch, heads, HEAD), the two numbers of a pair HEAD / 2 apart."""
    frequency = 10000.0 ** -torch.linspace(0, 1, HEAD // 2)  # <- angles
    c, s = torch.cos(position * frequency), torch.sin(position * frequency)  # <- angles
    a, b = torch.split(x, HEAD // 2, dim=-1)  # <- pairs
    return torch.cat([a * c - b * s, b * c + a * s], dim=-1)  # <- angles pairs


def retention(p, x):
    batch, length, _ = x.shape
    gamma = 1.0 - torch.exp2(-5.0 - torch.arange(N_HEAD))  # <- decays
    q, k, v, g = torch.einsum("bli,gihd->gblhd", x, p["qkvg"])
    state = x.new_zeros(batch, N_HEAD, HEAD, HEAD)
    seen = x.new_zeros(N_HEAD)
    outputs = []
    for t in range(length):
        query, key = rotate(q[:, t], t), rotate(k[:, t] * HEAD**-0.5, t)
        fresh = key[..., :, None] * v[:, t][..., None, :]
        state = gamma[:, None, None] * state + fresh  # <- decays present
        seen = gamma * seen + 1.0  # <- decays
        read = torch.einsum("bhk,bhkv->bhv", query, state)  # <- present
        outputs.append(read / seen.sqrt()[:, None])
    y = torch.stack(outputs, dim=1)
    y = rms(y).reshape(batch, length, WIDTH)  # <- perhead
    gate = g.reshape(batch, length, WIDTH)
    y = y * (gate * torch.sigmoid(gate))  # <- gate
    return y @ p["out"]


def feed_forward(p, x):
    up, linear = torch.einsum("bli,gif->gblf", x, p["up"])
    return (torch.nn.functional.gelu(up) * linear) @ p["down"]


def apply(params, tokens):
    x = params["embed"][tokens]
    for p in params["blocks"]:
        x = x + retention(p, rms(x, p["norm1"]))
        x = x + feed_forward(p, rms(x, p["norm2"]))
    return rms(x, params["norm"]) @ params["unembed"]


def halves(weight):
    """Rows of a query or key: even ones of a head first, then the odd ones."""
    per_head = weight.view(N_HEAD, HEAD // 2, 2, WIDTH)
    return per_head.transpose(1, 2).reshape(WIDTH, WIDTH)  # <- pairs


def convert(old):
    blocks = []
    for n in range(DEPTH):
        get = {k[len(f"layers.{n}.") :]: w for k, w in old.items() if k.startswith(f"layers.{n}.")}
        q = halves(get["retention.q_proj.weight"])
        k = halves(get["retention.k_proj.weight"])
        fused = [q, k, get["retention.v_proj.weight"], get["retention.g_proj.weight"]]
        blocks.append(
            {
                "norm1": get["retention_layer_norm.weight"],
                "qkvg": torch.stack([w.T.reshape(WIDTH, N_HEAD, HEAD) for w in fused]),
                "out": get["retention.out_proj.weight"].T,
                "norm2": get["final_layer_norm.weight"],
                "up": torch.stack([get["ffn.fc1.weight"].T, get["ffn.gate.weight"].T]),
                "down": get["ffn.fc2.weight"].T,
            }
        )
    return {
        "embed": old["embed_tokens.weight"],
        "blocks": blocks,
        "norm": old["layer_norm.weight"],
        "unembed": old["output_projection.weight"].T,
    }


def leaves(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    children = tree.values() if isinstance(tree, dict) else tree
    return [leaf for child in children for leaf in leaves(child)]


def trainable(tree):
    if isinstance(tree, torch.Tensor):
        return tree.clone().requires_grad_()
    if isinstance(tree, dict):
        return {name: trainable(child) for name, child in tree.items()}
    return [trainable(child) for child in tree]


def adamw(weights, grads, moments, t):
    peak, b1, b2, decay = 0.02, 0.9, 0.98, 0.05
    rate = peak * min(1.0, t / 4)  # <- warmup
    for w, g, (m, v) in zip(weights, grads, moments):
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        w.mul_(1 - rate * decay)  # <- warmup
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        w.sub_(rate * m_hat / (v_hat.sqrt() + 1e-8))  # <- warmup


params = trainable(convert(torch.load(sys.argv[1])))
weights = leaves(params)
moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
rng = np.random.default_rng(23)
losses = []
for step in range(1, 4):
    text = torch.tensor(rng.integers(0, N_VOCAB, (4, 10)))
    scores = apply(params, text[:, :-1])
    right = scores.gather(-1, text[:, 1:, None]).squeeze(-1)
    loss = (torch.logsumexp(scores, dim=-1) - right).mean()
    grads = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        adamw(weights, grads, moments, step)
    losses.append(loss.item())
