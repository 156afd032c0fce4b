# SPDX-License-Identifier: Apache-2.0
"""Object slots without modules: weights in a flat dict, images channels-last, slots on axis 0."""

import sys

import torch
import torch.nn.functional as F

W, C, K, ROUNDS = 6, 12, 3, 3


def affine(p, name, x):
    y = x @ p[name + ".weight"].mT
    return y + p[name + ".bias"] if name + ".bias" in p else y


def standardise(p, name, x):
    var, mu = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mu) * (var + 1e-5).rsqrt() * p[name + ".weight"] + p[name + ".bias"]


def conv_last(p, name, x):
    """Same-size convolution of (B, H, W, C) as one matmul over gathered neighbourhoods."""
    w = p[name + ".weight"]
    r = w.shape[-1] // 2
    cols = F.pad(x, (0, 0, r, r, r, r)).unfold(1, 2 * r + 1, 1).unfold(2, 2 * r + 1, 1)
    return cols.flatten(3) @ w.flatten(1).T + p[name + ".bias"]


def ramp(p, name):
    axis = torch.arange(W) / (W - 1)  # <- grid_span
    rows, cols = axis.repeat_interleave(W), axis.repeat(W)
    table = torch.stack([rows, cols, 1 - rows, 1 - cols], 1)  # <- grid_span
    return affine(p, name + ".embedding", table).view(W, W, C)  # <- grid_span


def recur(p, name, x, h):
    gx = x @ p[name + ".weight_ih"].T + p[name + ".bias_ih"]
    gh = h @ p[name + ".weight_hh"].T + p[name + ".bias_hh"]
    reset = torch.sigmoid(gx[..., :C] + gh[..., :C])
    keep = torch.sigmoid(gx[..., C : 2 * C] + gh[..., C : 2 * C])
    fresh = torch.tanh(gx[..., 2 * C :] + reset * gh[..., 2 * C :])
    return torch.lerp(fresh, h, keep)


def find_slots(p, pixels):
    """pixels (B, N, C) -> slots (K, B, C)"""
    s = "slot_attention."
    pixels = standardise(p, s + "norm_input", pixels)
    keys, vals = affine(p, s + "to_k", pixels), affine(p, s + "to_v", pixels)
    slots = p[s + "slots_init"].transpose(0, 1).expand(K, len(pixels), C)
    for _ in range(ROUNDS):
        normed = standardise(p, s + "norm_slots", slots)
        ask = affine(p, s + "to_q", normed) / C**0.5
        logit = (ask.unsqueeze(2) * keys).sum(-1)
        share = torch.softmax(logit, 0) + 1e-8  # <- compete_axis
        pulled = (share.unsqueeze(-1) * vals).sum(2)  # <- weighted_mean
        pulled = pulled / share.sum(2).unsqueeze(-1)  # <- weighted_mean
        slots = recur(p, s + "gru", pulled, slots)  # <- gru_state
        hidden = affine(p, s + "mlp.0", standardise(p, s + "norm_pre_ff", slots)).relu()
        slots = slots + affine(p, s + "mlp.2", hidden)
    return slots


def reconstruct(p, img):
    feat = conv_last(p, "encoder.0", img).relu() + ramp(p, "encoder_pos")
    slots = find_slots(p, feat.reshape(len(img), W * W, C))
    canvas = slots[:, :, None, None] + ramp(p, "decoder_pos")
    hidden = conv_last(p, "decoder.0", canvas.flatten(0, 1)).relu()
    out = hidden @ p["decoder.2.weight"][:, :, 0, 0].T + p["decoder.2.bias"]
    out = out.view(K, len(img), W, W, 4)
    weight = torch.exp(out[..., 3:] - torch.logsumexp(out[..., 3:], 0))  # <- slot_masks
    return torch.sum(out[..., :3] * weight, 0)  # <- slot_masks


params = {k: v.requires_grad_() for k, v in torch.load(sys.argv[1], weights_only=True).items()}
speed = {}
gen = torch.Generator().manual_seed(43)
frames = torch.randn(4, 5, 3, W, W, generator=gen).movedim(2, -1)

losses = []
for img in frames:
    miss = (reconstruct(params, img) - img).flatten()
    loss = miss.dot(miss) / miss.numel()
    loss.backward()
    with torch.no_grad():
        for name, w in params.items():
            speed[name] = speed.get(name, 0.0) * 0.9 + w.grad
            w.add_(speed[name], alpha=-0.05)
            w.grad = None
    losses.append(loss.item())
print(losses)
