# SPDX-License-Identifier: Apache-2.0
"""Swin without torchvision: flat token sequences, gathered windows, tables of indices, foreach momentum."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

WIN = 4


def window_plan(side, shift):
    """Order of the tokens, window by window, and which of a window's tokens may meet."""
    row, col = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    source = ((row + shift) % side) * side + (col + shift) % side
    per = side // WIN
    order = source.view(per, WIN, per, WIN).transpose(1, 2).reshape(per * per, WIN * WIN)
    zone_r = (row >= side - WIN).long() + (row >= side - shift).long()
    zone_c = (col >= side - WIN).long() + (col >= side - shift).long()
    zone = (zone_r * 3 + zone_c).view(per, WIN, per, WIN).transpose(1, 2).reshape(per * per, WIN * WIN)
    if shift == 0:
        zone = torch.zeros_like(zone)
    return order, zone[:, :, None] == zone[:, None, :]  # <- shift_mask


def bias_lookup():
    ij = torch.cartesian_prod(torch.arange(WIN), torch.arange(WIN))
    gap = ij.unsqueeze(1) - ij.unsqueeze(0) + WIN - 1  # <- bias_index
    return gap[..., 0] * (2 * WIN - 1) + gap[..., 1]


LOOKUP = bias_lookup()  # <- bias_index


def load(path):
    """Parameters under short names; the index buffers of torchvision are dropped."""
    short = {"features.0.0": "patch", "features.0.2": "patch_norm", "features.1.": "a", "features.2.": "merge.",
             "features.3.": "b", "mlp.0": "up", "mlp.3": "down", "attn.relative_position_bias_table": "rpb"}
    w = {}
    for key, value in torch.load(path).items():
        if key.endswith("relative_position_index"):
            continue
        for old, new in short.items():
            key = key.replace(old, new)
        w[key] = value.clone().requires_grad_()
    return w


def ln(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)


def lin(x, w, name):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def window_attention(x, w, name, heads, side, shift):
    order, meet = window_plan(side, shift)  # <- shift_mask
    b, _, c = x.shape
    q, k, v = lin(x[:, order], w, name + ".attn.qkv").unflatten(-1, (3, heads, c // heads)).permute(3, 0, 1, 4, 2, 5)
    bias = w[name + ".rpb"][LOOKUP].permute(2, 0, 1)  # <- bias_index
    bias = bias.masked_fill(~meet[:, None], -100.0) if shift else bias  # <- shift_mask
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # <- shift_mask bias_index
    y = lin(y.transpose(2, 3).flatten(3), w, name + ".attn.proj").flatten(1, 2)
    return y[:, order.flatten().argsort()]


def stage(x, w, name, heads, side):
    for i in range(2):
        shift = WIN // 2 if i == 1 and side > WIN else 0
        n = name + str(i)
        x = x + window_attention(ln(x, w, n + ".norm1"), w, n, heads, side, shift)
        x = x + lin(F.gelu(lin(ln(x, w, n + ".norm2"), w, n + ".up")), w, n + ".down")
    return x


def merge(x, w, side):
    grid = x.unflatten(1, (side // 2, 2, side // 2, 2))
    four = grid.permute(0, 1, 3, 4, 2, 5).flatten(3)  # <- merge_order
    return lin(ln(four.flatten(1, 2), w, "merge.norm"), w, "merge.reduction")  # <- merge_order


def logits_of(images, w):
    x = F.conv2d(images, w["patch.weight"], w["patch.bias"], stride=2).flatten(2).mT
    x = stage(ln(x, w, "patch_norm"), w, "a", 2, 8)
    x = stage(merge(x, w, 8), w, "b", 4, 4)  # <- merge_order
    return lin(ln(x, w, "norm").mean(1), w, "head")


def smoothed(logits, y, s=0.2):
    logp = logits.log_softmax(1)
    soft = torch.full_like(logp, s / logits.size(1))  # <- smoothing_share
    soft.scatter_(1, y[:, None], 1 - s + s / logits.size(1))  # <- smoothing_share
    return -(soft * logp).sum(1).mean()  # <- smoothing_share


def lr_at(i):
    if i < 2:
        return 0.05 * (0.25 + 0.75 * i / 2)
    return 0.005 + 0.0225 * (1 + math.cos(math.pi * (i - 2) / 3))


w = load(sys.argv[1])
names, leaves = list(w), list(w.values())
decay = [0.0 if "norm" in n or n.endswith("rpb") else 0.05 for n in names]
velocity = [torch.zeros_like(p) for p in leaves]

gen = torch.Generator().manual_seed(70)
pixels = torch.rand(30, 3, 16, 16, generator=gen)
classes = torch.randint(0, 7, (30,), generator=gen)
centre, spread = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)

losses = []
for i, (px, y) in enumerate(zip(pixels.split(6), classes.split(6))):
    loss = smoothed(logits_of((px - centre) / spread, w), y)  # <- smoothing_share
    grads = list(torch.autograd.grad(loss, leaves))
    with torch.no_grad():
        length = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, float(torch.clamp(1.0 / (length + 1e-6), max=1.0)))
        grads = [g + d * p for g, d, p in zip(grads, decay, leaves)]
        torch._foreach_mul_(velocity, 0.9)  # <- nesterov_form
        torch._foreach_add_(velocity, grads)  # <- nesterov_form
        ahead = torch._foreach_add(grads, velocity, alpha=0.9)  # <- nesterov_form
        torch._foreach_sub_(leaves, ahead, alpha=lr_at(i))  # <- nesterov_form
    losses.append(loss.item())
print(losses)
