# SPDX-License-Identifier: Apache-2.0
"""Dense mixture of experts: every expert sees every token, a table weighs them."""
import math
import sys

import torch

N_LAYER, E, K, V = 2, 4, 2, 37
src = torch.load(sys.argv[1], weights_only=True)
weights = {"tok": src["embed_tokens.weight"], "unembed": src["lm_head.weight"]}
for l in range(N_LAYER):
    weights[f"mix_w{l}"], weights[f"mix_b{l}"] = src[f"mixers.{l}.weight"], src[f"mixers.{l}.bias"]
    weights[f"router{l}"] = src[f"blocks.{l}.gate.weight"]
    stack = lambda n: torch.stack([src[f"blocks.{l}.experts.{e}.{n}.weight"] for e in range(E)])
    weights[f"wi{l}"] = torch.cat([stack("w1"), stack("w3")], 1)  # [E, 2F, D]
    weights[f"wo{l}"] = stack("w2")
for l in range(N_LAYER + 1):
    weights[f"gain{l}"] = src[f"norms.{l}.weight"]
weights = {k: v.clone().requires_grad_() for k, v in weights.items()}


def rms(x, gain):
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain


def moe(x, l):
    """x: [N, D] -> output, router probabilities [N, E], chosen [N, E]"""
    score = torch.einsum("nd,ed->ne", x, weights[f"router{l}"])
    prob = torch.softmax(score, -1)
    rank = (prob[:, None, :] > prob[:, :, None]).sum(-1)
    chosen = (rank < K).to(x.dtype)
    table = (prob * chosen) / (prob * chosen).sum(-1, keepdim=True)  # <- renormalise
    act, lin = torch.einsum("nd,efd->enf", x, weights[f"wi{l}"]).chunk(2, -1)  # <- gate_side
    hid = act * torch.sigmoid(act) * lin  # <- gate_side
    out = torch.einsum("enf,edf,ne->nd", hid, weights[f"wo{l}"], table)  # <- renormalise
    return out, prob, chosen


def forward(ids):
    x = weights["tok"][ids]
    B, T, D = x.shape
    lower = torch.ones(T, T).tril()
    average = lower / lower.sum(1, keepdim=True)  # <- running_mean
    usage, belief = [], []
    for l in range(N_LAYER):
        x = x + (average @ x) @ weights[f"mix_w{l}"].T + weights[f"mix_b{l}"]  # <- running_mean
        y, prob, chosen = moe(rms(x, weights[f"gain{l}"]).reshape(B * T, D), l)
        x = x + y.reshape(B, T, D)
        usage.append(chosen.mean(0))
        belief.append(prob.mean(0))
    f = sum(usage) / N_LAYER  # <- balance_layers
    p = sum(belief) / N_LAYER  # <- balance_layers
    balance = E * (f * p).sum()  # <- balance_layers
    return rms(x, weights[f"gain{N_LAYER}"]) @ weights["unembed"].T, balance


def cosine(t, top=3e-3, low=3e-4, period=6):
    return low + (top - low) * 0.5 * (1 + math.cos(math.pi * t / period))


moments = {k: (torch.zeros_like(w), torch.zeros_like(w)) for k, w in weights.items()}
g = torch.Generator().manual_seed(99)
losses = []
for t in range(5):
    ids = torch.randint(V, (3, 12), generator=g)
    z, balance = forward(ids[:, :-1])
    picked = z.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    total = (z.logsumexp(-1) - picked).mean() + 0.05 * balance
    total.backward()
    lr = cosine(t)
    for k, w in weights.items():
        m, v = moments[k]
        m.lerp_(w.grad, 0.1)
        v.lerp_(w.grad * w.grad, 0.001)
        update = (m / (1 - 0.9 ** (t + 1))) / ((v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8)
        w.data = w.data - lr * (update + 0.1 * w.data)  # <- decay_scope
        w.grad = None
    losses.append(total.item())
print(losses)
