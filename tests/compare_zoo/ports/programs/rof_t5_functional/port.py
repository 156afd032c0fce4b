# SPDX-License-Identifier: Apache-2.0
"""T5 as pure functions over a dictionary of matrices, with Adafactor as a function too."""
import bisect
import sys

import torch
from torch.nn.functional import cross_entropy, embedding, pad, relu

torch.set_num_threads(1)
H, DH, D, LAYERS, BUCKETS, REACH = 4, 8, 32, 2, 8, 16


def read(path):
    """Names without the towers of modules; matrices to stand on the right of x."""
    ours = {}
    tails = {"SelfAttention": "self", "EncDecAttention": "cross", "DenseReluDense": "ff"}
    for name, w in torch.load(path).items():
        part = name.split(".")
        if name == "shared.weight":
            ours["embed"] = w
        elif "relative_attention_bias" in name:
            ours[part[0] + ".bias"] = w
        elif "final_layer_norm" in name:
            ours[part[0] + ".norm"] = w
        elif part[1:2] == ["block"]:
            stem = f"{part[0]}.{part[2]}."
            if "layer_norm" in name:
                ours[stem + "norm" + part[4]] = w
            else:
                ours[stem + tails[part[5]] + "." + part[6]] = w.t().contiguous()
    return {k: v.clone().requires_grad_() for k, v in ours.items()}


def rms(x, g):
    return g * x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


def bucket(distance, two_way):
    """distance = key place - query place; looked up, not computed with logarithms of tensors."""
    count, base = BUCKETS, 0
    if two_way:
        count //= 2
        base = count if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = count // 2
    if distance < exact:
        return base + distance
    edges = [exact * (REACH / exact) ** (j / (count - exact)) for j in range(1, count - exact)]
    return base + exact + bisect.bisect_right(edges, distance + 1e-9)


def position_bias(table, n, two_way):
    index = torch.tensor([[bucket(k - q, two_way) for k in range(n)] for q in range(n)])
    return embedding(index, table).permute(2, 0, 1)


def heads(x):
    return x.unflatten(-1, (H, DH)).transpose(1, 2)


def attention(p, stem, x, memory, bias):
    q, k, v = heads(x @ p[stem + ".q"]), heads(memory @ p[stem + ".k"]), heads(memory @ p[stem + ".v"])
    mix = (q @ k.mT + bias).softmax(-1) @ v
    return mix.transpose(1, 2).flatten(-2) @ p[stem + ".o"]


def feed_forward(p, stem, x):
    return relu(x @ p[stem + ".wi"]) @ p[stem + ".wo"]


def encode(p, source, blocked):
    x = p["embed"][source]
    bias = position_bias(p["encoder.bias"], source.shape[1], True) + blocked
    for i in range(LAYERS):
        s = f"encoder.{i}."
        y = rms(x, p[s + "norm0"])
        x = x + attention(p, s + "self", y, y, bias)
        x = x + feed_forward(p, s + "ff", rms(x, p[s + "norm1"]))
    return rms(x, p["encoder.norm"])


def decode(p, tokens, memory, blocked):
    n = tokens.shape[1]
    x = p["embed"][tokens]
    bias = position_bias(p["decoder.bias"], n, two_way=False)  # <- one_way_buckets
    bias = bias + torch.full((n, n), -torch.inf).triu(1)
    for i in range(LAYERS):
        s = f"decoder.{i}."
        y = rms(x, p[s + "norm0"])
        x = x + attention(p, s + "self", y, y, bias)  # <- one_way_buckets
        x = x + attention(p, s + "cross", rms(x, p[s + "norm1"]), memory, blocked)  # <- cross_mask
        x = x + feed_forward(p, s + "ff", rms(x, p[s + "norm2"]))
    return rms(x, p["decoder.norm"])


def objective(p, source, target):
    blocked = torch.zeros(source.shape).masked_fill(source == 0, -torch.inf)[:, None, None]
    memory = encode(p, source, blocked)
    states = decode(p, pad(target, (1, -1)), memory, blocked)
    scores = (states * D**-0.5) @ p["embed"].t()  # <- logit_scale
    return cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=0)  # <- label_pad


def adafactor(p, grads, memory, t, lr=5e-3, limit=0.7):
    keep = 1 - t**-0.8
    for (name, w), g in zip(p.items(), grads):
        square = g * g + 1e-30
        if w.ndim == 2:
            rows, cols = memory.get(name, (0.0, 0.0))
            rows = keep * rows + (1 - keep) * square.mean(1)
            cols = keep * cols + (1 - keep) * square.mean(0)
            memory[name] = rows, cols
            step = g * (rows / rows.mean()).rsqrt()[:, None] * cols.rsqrt()
        else:
            memory[name] = keep * memory.get(name, 0.0) + (1 - keep) * square
            step = g * memory[name].rsqrt()
        size = step.square().mean().sqrt()  # <- update_clip
        step = step / (size / limit).clamp(min=1.0)  # <- update_clip
        w.data -= lr * step


def toy(generator, size=4):
    pairs = []
    for _ in range(size):
        n = torch.randint(4, 13, (1,), generator=generator).item()
        s = torch.randint(2, 48, (n,), generator=generator)
        pairs.append((pad(s, (0, 1), value=1), pad(s.flip(0), (0, 1), value=1)))
    width = max(len(s) for s, _ in pairs)
    return [torch.stack([pad(row, (0, width - len(row))) for row in side]) for side in zip(*pairs)]


params, moments, losses = read(sys.argv[1]), {}, []
rng = torch.Generator().manual_seed(4)
for t in range(1, 6):
    value = objective(params, *toy(rng))
    adafactor(params, torch.autograd.grad(value, list(params.values())), moments, t)
    losses.append(value.item())

print(losses)
