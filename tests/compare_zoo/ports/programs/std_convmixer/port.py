# SPDX-License-Identifier: Apache-2.0
"""ConvMixer written again from the paper: channels-last arrays, patches as matrices, own SGD."""

import sys

import torch

ckpt = torch.load(sys.argv[1], weights_only=True)


def leaf(t):
    return t.clone().requires_grad_()


def norm_pair(prefix):
    return leaf(ckpt[prefix + ".weight"]), leaf(ckpt[prefix + ".bias"])


stem_w = leaf(ckpt["0.weight"].flatten(1).T)  # (3 * 3 * 3, dim)
stem_n = norm_pair("2")
blocks = []
for n in ("3", "4"):
    blocks.append(
        {
            "depth": leaf(ckpt[f"{n}.0.fn.0.weight"][:, 0].permute(1, 2, 0).contiguous()),
            "depth_n": norm_pair(f"{n}.0.fn.2"),
            "point": leaf(ckpt[f"{n}.1.weight"][:, :, 0, 0].T),
            "point_n": norm_pair(f"{n}.3"),
        }
    )
head_w, head_b = leaf(ckpt["7.weight"].T), leaf(ckpt["7.bias"])
weights = [stem_w, *stem_n, head_w, head_b]
for blk in blocks:
    weights += [blk["depth"], *blk["depth_n"], blk["point"], *blk["point_n"]]


def act_norm(x, pair):
    gain, shift = pair
    x = 0.5 * x * (1 + torch.erf(x * 0.5**0.5))  # <- gelu
    mean = x.mean((0, 1, 2))
    var = x.var((0, 1, 2), unbiased=False)  # <- variance
    return (x - mean) / (var + 1e-5).sqrt() * gain + shift  # <- variance


def depthwise(x, kernel):
    """sum over shifted copies; x is (batch, height, width, channel)"""
    n, h, w, c = x.shape
    canvas = x.new_zeros(n, h + 4, w + 4, c)
    canvas[:, 2 : 2 + h, 2 : 2 + w] = x
    total = 0
    for i in range(5):
        for j in range(5):
            total = total + canvas[:, i : i + h, j : j + w] * kernel[i, j]
    return total


def logits_of(x):
    n, c, h, w = x.shape
    tiles = x.view(n, c, h // 3, 3, w // 3, 3).permute(0, 2, 4, 1, 3, 5)
    x = act_norm(tiles.reshape(n, h // 3, w // 3, c * 9) @ stem_w, stem_n)
    for blk in blocks:
        x = x + act_norm(depthwise(x, blk["depth"]), blk["depth_n"])  # <- residual
        x = act_norm(x @ blk["point"], blk["point_n"])
    return x.mean((1, 2)) @ head_w + head_b


def smoothed_nll(z, y, alpha=0.1):  # <- smoothing
    logp = z - z.logsumexp(1, keepdim=True)
    truth = torch.full_like(z, alpha / 7)  # <- smoothing
    truth[torch.arange(len(y)), y] += 1 - alpha  # <- smoothing
    return -(truth * logp).sum(1).mean()  # <- smoothing


velocity = [torch.zeros_like(w) for w in weights]
source = torch.Generator().manual_seed(11)
losses = []
for _ in range(4):
    pictures = torch.randn(6, 3, 18, 18, generator=source)
    labels = torch.randint(0, 7, (6,), generator=source)
    loss = smoothed_nll(logits_of(pictures), labels)
    grads = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for w, v, g in zip(weights, velocity, grads):
            v.mul_(0.9).add_(g)
            w -= 0.2 * (g + 0.9 * v)  # <- nesterov
    losses.append(loss.item())
print(losses)
