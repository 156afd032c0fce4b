# SPDX-License-Identifier: Apache-2.0
"""The diffusion model in NHWC, nested parameters with Flax's names, noise levels from a table of
signal and noise rates, both guidance halves in one batch.
"""

import math
import sys

import torch
import torch.nn.functional as F

T, NULL = 20, 3


def flax_tree(theirs):
    tree = {}
    for name, tensor in theirs.items():
        value, path = tensor, name.split(".")
        if "norm" in path[-2]:
            leaf = {"weight": "scale", "bias": "bias"}[path[-1]]
        elif path[0] == "attn":
            leaf = path[-1].replace("weight", "kernel")
            value = value.t() if value.dim() == 2 else value
        elif path[0] == "label":
            leaf = "embedding"
        else:
            leaf = path[-1].replace("weight", "kernel")
            if value.dim() == 4:
                value = value.permute(2, 3, 1, 0)
            elif value.dim() == 2:
                value = value.t()
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[leaf] = value.clone(memory_format=torch.contiguous_format).requires_grad_()
    return tree


def conv(p, x, stride=1):
    k = p["kernel"]
    if len(k) == 1:
        return x @ k[0, 0] + p["bias"]
    x = F.pad(x, (0, 0, 1, 1, 1, 1))
    rows, cols = x.shape[1] - 2, x.shape[2] - 2
    taps = [x[:, i : i + rows : stride, j : j + cols : stride] for i in range(3) for j in range(3)]
    return torch.cat(taps, -1) @ k.flatten(0, 2) + p["bias"]


def dense(p, x):
    return torch.addmm(p["bias"], x, p["kernel"])


def swish(x):
    return x / (1 + torch.exp(-x))


def group_norm(p, x, groups=4):
    b, h, w, c = x.shape
    parts = x.reshape(b, h * w, groups, c // groups)  # <- grouped
    var, mean = torch.var_mean(parts, (1, 3), correction=0, keepdim=True)  # <- grouped
    parts = (parts - mean) / torch.sqrt(var + 1e-5)  # <- grouped
    return parts.reshape(x.shape) * p["scale"] + p["bias"]


def res_block(p, x, emb):
    h = conv(p["conv1"], swish(group_norm(p["norm1"], x)))
    film = dense(p["emb"], swish(emb))[:, None, None]
    scale, shift = film.split(film.shape[-1] // 2, -1)  # <- modulated
    h = torch.addcmul(shift, group_norm(p["norm2"], h), scale + 1)  # <- modulated
    h = conv(p["conv2"], swish(h))
    return h + (conv(p["skip"], x) if "skip" in p else x)


def attention(p, x, heads=2):
    b, h, w, c = x.shape
    qkv = x.reshape(b, h * w, c) @ p["in_proj_kernel"] + p["in_proj_bias"]
    q, k, v = qkv.reshape(b, h * w, 3, heads, c // heads).unbind(2)
    weights = torch.einsum("bqhd,bkhd->bhqk", q * (c // heads) ** -0.5, k).softmax(-1)
    out = torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b * h * w, c)
    return dense(p["out_proj"], out).reshape(b, h, w, c)


def denoise(p, x, t, label):
    angles = torch.outer(t.float(), 10000 ** (-torch.arange(8) / 8))
    emb = dense(p["time"]["0"], torch.cat((torch.cos(angles), torch.sin(angles)), 1))  # <- sines
    emb = dense(p["time"]["2"], swish(emb)) + p["label"]["embedding"][label]
    skip = res_block(p["down"], conv(p["conv_in"], x), emb)
    h = res_block(p["mid"], conv(p["pool"], skip, 2), emb)
    h = h + attention(p["attn"], group_norm(p["attn_norm"], h))
    h = h.repeat_interleave(2, 1).repeat_interleave(2, 2)
    return conv(p["conv_out"], res_block(p["up"], torch.cat((h, skip), -1), emb))


def leaves(node):
    for child in node.values():
        yield from leaves(child) if isinstance(child, dict) else [child]


angle = (torch.arange(T + 1, dtype=torch.float64) / T + 0.008) / 1.008 * math.pi / 2
bar = (angle[1:].cos() / angle[0].cos()) ** 2
bar[-1] = bar[-2] * max(0.001, bar[-1] / bar[-2])
SIGNAL, NOISE = bar.sqrt().float(), (1 - bar).sqrt().float()
params = flax_tree(torch.load(sys.argv[1]))
adam = torch.optim.Adam(list(leaves(params)), lr=3e-3, eps=1e-4, foreach=True)
rng = torch.Generator().manual_seed(112)
losses = []
for _ in range(3):
    image = torch.randn(4, 1, 8, 8, generator=rng).squeeze(1).cumsum(2)[..., None] / 2
    label = torch.randint(3, (4,), generator=rng)
    label = torch.where(torch.rand(4, generator=rng) < 0.3, NULL, label)
    t = torch.randint(T, (4,), generator=rng)
    noise = torch.randn(4, 1, 8, 8, generator=rng).movedim(1, 3)
    noised = torch.einsum("b,bhwc->bhwc", SIGNAL[t], image)
    noised = noised + torch.einsum("b,bhwc->bhwc", NOISE[t], noise)
    error = (denoise(params, noised, t, label) - noise).square().flatten(1).mean(1)
    ratio = (NOISE[t] / SIGNAL[t]) ** 2
    loss = torch.dot(error, (2.0 * ratio).clamp(max=1.0)) / len(error)  # <- weighted
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())

with torch.no_grad():
    x = torch.randn(4, 1, 8, 8, generator=rng).movedim(1, 3)
    label = torch.tensor([NULL, NULL, NULL, NULL, 0, 1, 2, 1])
    eps = denoise(params, torch.cat((x, x)), torch.full((8,), 15), label)
    free, told = eps.chunk(2)
    eps = torch.lerp(free, told, 3.0)  # <- guided
    image = (x - NOISE[15] * eps) / SIGNAL[15]
    losses.append((SIGNAL[14] * image + NOISE[14] * eps).square().mean().item())
