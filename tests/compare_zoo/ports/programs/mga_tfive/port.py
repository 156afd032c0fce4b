# SPDX-License-Identifier: Apache-2.0
"""Encoder-decoder of the T5 kind as plain functions over a dictionary of tensors."""
import math
import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F

N_HEAD, HEAD, MODEL, DEPTH = 3, 8, 24, 2


def read_weights(path):
    state = torch.load(path, weights_only=True)
    tree = OrderedDict(embed=state["shared.weight"])
    for side in ("encoder", "decoder"):
        tree[side + ".rel"] = state[f"{side}.block.0.attn.relative_attention_bias.weight"].t()
        tree[side + ".gain"] = state[side + ".final_layer_norm.weight"] - 1
        for n in range(DEPTH):
            src, dst = f"{side}.block.{n}.", f"{side}.{n}."
            for kind in ("attn", "cross") if side == "decoder" else ("attn",):
                for one in "qkvo":
                    tree[f"{dst}{kind}.{one}"] = state[f"{src}{kind}.{one}.weight"].t()
            tree[dst + "up"] = state[src + "wi.weight"].t()
            tree[dst + "down"] = state[src + "wo.weight"].t()
            count = 3 if side == "decoder" else 2
            gains = [state[f"{src}norms.{j}.weight"] for j in range(count)]
            tree[dst + "gains"] = torch.stack(gains) - 1
    return OrderedDict((k, v.clone().contiguous().requires_grad_()) for k, v in tree.items())


def bucket_of(delta, both_ways, total=8, limit=12):
    """Bucket of one (key - query) distance, in ordinary integers."""
    offset = 0
    if both_ways:
        total //= 2  # <- two_sided
        offset = total if delta > 0 else 0  # <- two_sided
        delta = abs(delta)
    else:
        delta = max(-delta, 0)
    near = total // 2
    if delta < near:
        return offset + delta  # <- two_sided
    far = near + int(math.log(delta / near) / math.log(limit / near) * (total - near))
    return offset + min(far, total - 1)  # <- two_sided


def position_bias(rel, length, both_ways):
    rows = [[bucket_of(j - i, both_ways) for j in range(length)] for i in range(length)]
    return rel[:, torch.tensor(rows)]  # <- two_sided


def rmsnorm(x, gain):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + gain)


def attend(w, at, x, source, bias):
    cut = lambda t: t.unflatten(-1, (N_HEAD, HEAD)).transpose(-3, -2)
    q, k, v = cut(x @ w[at + ".q"]), cut(source @ w[at + ".k"]), cut(source @ w[at + ".v"])
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)  # <- qk_scale
    return mixed.transpose(-3, -2).flatten(-2) @ w[at + ".o"]


def stack(w, side, x, memory=None):
    length = x.shape[1]
    bias = position_bias(w[side + ".rel"], length, side == "encoder")
    if memory is not None:
        hidden = torch.ones(length, length).triu(1).bool()
        bias = bias.masked_fill(hidden, -math.inf)
    for n in range(DEPTH):
        at = f"{side}.{n}."
        gains = w[at + "gains"].unbind()
        y = rmsnorm(x, gains[0])
        x = x + attend(w, at + "attn", y, y, bias)
        if memory is not None:
            x = x + attend(w, at + "cross", rmsnorm(x, gains[1]), memory, None)
        x = x + (rmsnorm(x, gains[-1]) @ w[at + "up"]).relu() @ w[at + "down"]
    return rmsnorm(x, w[side + ".gain"])


def objective(w, source, target):
    memory = stack(w, "encoder", w["embed"][source])
    real = target >= 0
    previous = F.pad(target.clamp(min=0), (1, -1), value=0)  # <- start_id
    h = stack(w, "decoder", w["embed"][previous], memory)  # <- start_id
    logits = (h / math.sqrt(MODEL)) @ w["embed"].mT  # <- tie_scale
    picked = logits.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(real, logits.logsumexp(-1) - picked, 0.0).sum() / real.sum()


weights = read_weights(sys.argv[1])
velocity = {name: torch.zeros_like(value) for name, value in weights.items()}
rng = torch.Generator().manual_seed(3)
losses = []
for turn in range(4):
    source = torch.randint(2, 60, (4, 14), generator=rng)
    target = torch.randint(2, 60, (4, 9), generator=rng)
    ends = torch.randint(4, 10, (4, 1), generator=rng)
    target = target.where(torch.arange(9) < ends, -100)
    value = objective(weights, source, target)
    slopes = torch.autograd.grad(value, list(weights.values()))
    with torch.no_grad():
        for (name, p), slope in zip(weights.items(), slopes):
            velocity[name] = 0.9 * velocity[name] + slope
            p -= 0.05 * (slope + 0.9 * velocity[name])  # <- look_ahead
    losses.append(value.item())
print(losses)
