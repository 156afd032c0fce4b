# SPDX-License-Identifier: Apache-2.0
"""The speech model again with own primitives: frames by indexing, hand-made attention and Adam."""
import math
import sys

import torch


def erf_gelu(x):
    return x * torch.special.ndtr(x)


def framed_conv(x, weight, stride):
    """x: (B, T, C); weight: (O, C, K); no padding; gives (B, T', O)."""
    k = weight.shape[2]
    starts = torch.arange(0, x.shape[1] - k + 1, stride)
    windows = x[:, starts[:, None] + torch.arange(k)]
    return torch.einsum("btkc,ock->bto", windows, weight)


def standardise(x, dims, gain, shift, eps=1e-5):
    centred = x - x.mean(dims, keepdim=True)  # <- group_axis
    return centred / (centred.pow(2).mean(dims, keepdim=True) + eps).sqrt() * gain + shift


def positional(p, x, groups=2):
    weight = p["pos.conv.weight"].chunk(groups)
    k = weight[0].shape[2]
    left, right = k // 2, k - 1 - k // 2  # <- pos_trim
    b, _, d = x.shape
    x = torch.cat([x.new_zeros(b, left, d), x, x.new_zeros(b, right, d)], 1)  # <- pos_trim
    parts = [framed_conv(a, w, 1) for a, w in zip(x.chunk(groups, 2), weight)]  # <- pos_trim
    return erf_gelu(torch.cat(parts, 2) + p["pos.conv.bias"])  # <- pos_trim


def encoder_layer(p, x, heads=2):
    q, k, v = (x @ p["layer.self_attn.in_proj_weight"].T
               + p["layer.self_attn.in_proj_bias"]).tensor_split(3, -1)
    head_dim = q.shape[-1] // heads
    mixed = []
    for h in range(heads):
        s = slice(h * head_dim, (h + 1) * head_dim)
        scores = torch.bmm(q[..., s], k[..., s].mT) / math.sqrt(head_dim)
        mixed.append(torch.bmm(scores.softmax(-1), v[..., s]))
    a = torch.cat(mixed, -1) @ p["layer.self_attn.out_proj.weight"].T
    x = x + a + p["layer.self_attn.out_proj.bias"]
    x = standardise(x, -1, p["layer.norm1.weight"], p["layer.norm1.bias"])
    h = erf_gelu(x @ p["layer.linear1.weight"].T + p["layer.linear1.bias"])
    x = x + h @ p["layer.linear2.weight"].T + p["layer.linear2.bias"]
    return standardise(x, -1, p["layer.norm2.weight"], p["layer.norm2.bias"])


def objective(p, wave, keep, others, temp=0.1):
    x = framed_conv(wave[..., None], p["conv0.weight"], 5)
    x = erf_gelu(standardise(x, 1, p["gn.weight"], p["gn.bias"]))  # <- group_axis
    x = erf_gelu(framed_conv(x, p["conv1.weight"], 2))
    x = 0.1 * x + 0.9 * x.detach()  # <- feature_grad
    feats = standardise(x, -1, p["feat_norm.weight"], p["feat_norm.bias"])  # <- feature_grad
    m = keep[..., None].float()
    x = (1 - m) * (feats @ p["proj.weight"].T + p["proj.bias"]) + m * p["mask_emb"]
    x = encoder_layer(p, x + positional(p, x))  # <- pos_trim
    where = keep.nonzero()[:, 1].view(len(wave), -1, 1)
    pred = torch.take_along_dim(x, where, 1) @ p["final.weight"].T + p["final.bias"]
    goal = torch.take_along_dim(feats, where, 1) @ p["target.weight"].T + p["target.bias"]
    unit = lambda t: t / t.square().sum(-1, keepdim=True).sqrt()
    table = torch.einsum("bmd,bnd->bmn", unit(pred), unit(goal)) / temp  # <- temperature
    positive = table.diagonal(dim1=1, dim2=2)  # <- skip_self
    negative = table.gather(2, others)  # <- skip_self
    nce = torch.logaddexp(positive, negative.logsumexp(2)) - positive
    return nce.mean() + 0.1 * (feats * feats).mean()


saved = torch.load(sys.argv[1], weights_only=True)
weights = {k: v.requires_grad_() for k, v in saved["weights"].items()}
first = {k: torch.zeros_like(v) for k, v in weights.items()}
second = {k: torch.zeros_like(v) for k, v in weights.items()}
losses = []
for t, (wave, draws) in enumerate(zip(saved["waves"], saved["draws"]), 1):
    me = torch.arange(draws.shape[1]).view(1, -1, 1)
    others = torch.where(draws < me, draws, draws + 1)  # <- skip_self
    loss = objective(weights, wave, saved["mask"], others)
    grads = torch.autograd.grad(loss, list(weights.values()))
    with torch.no_grad():
        for (name, w), g in zip(weights.items(), grads):
            first[name].lerp_(g, 0.1)
            second[name].lerp_(g * g, 0.02)
            denom = (second[name] / (1 - 0.98 ** t)).sqrt() + 1e-4
            w -= 2e-3 / (1 - 0.9 ** t) * first[name] / denom
    losses.append(loss.item())
print(losses)
