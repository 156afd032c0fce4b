# SPDX-License-Identifier: Apache-2.0
"""Time-major conformer without nn layers: unfolded convolutions, additive masks, own momentum."""
import sys

import torch
import torch.nn.functional as F

HEADS, TAPS = 2, 5


class Scope:
    """A view of the flat weights below a prefix."""

    def __init__(self, flat, prefix=""):
        self.flat, self.prefix = flat, prefix

    def __truediv__(self, name):
        return Scope(self.flat, f"{self.prefix}{name}.")

    def __getitem__(self, name):
        return self.flat[self.prefix + name]


def affine(p, x):
    w = p["weight"]
    return torch.addmm(p["bias"], x.flatten(0, 1), w.flatten(1).t()).unflatten(0, x.shape[:2])


def standardize(p, x):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * p["weight"] + p["bias"]


def frames(x, taps, stride):
    """[T, B, C] -> [T', B, C, taps], centred windows"""
    edge = x.new_zeros(taps // 2, *x.shape[1:])
    return torch.cat([edge, x, edge]).unfold(0, taps, stride)


def feed_forward(p, x):
    p = p / "net"
    h = affine(p / 1, standardize(p / 0, x))
    return affine(p / 3, h * torch.sigmoid(h))


def attention(p, x, key_bias):
    T, B, D = x.shape
    q, k, v = (
        (x @ w.t() + b).reshape(T, B * HEADS, D // HEADS).transpose(0, 1)
        for w, b in zip(p["in_proj_weight"].chunk(3), p["in_proj_bias"].chunk(3))
    )
    score = torch.baddbmm(key_bias, q, k.transpose(1, 2), alpha=(D // HEADS) ** -0.5)
    mixed = torch.bmm(score.softmax(-1), v).transpose(0, 1).reshape(T, B, D)
    return affine(p / "out_proj", mixed)


def conv_module(p, x, alive):
    a, b = affine(p / "pointwise_conv1", standardize(p / "layer_norm", x)).chunk(2, dim=-1)
    h = a * torch.sigmoid(b) * alive  # <- pad_leak
    kernel = p["depthwise_conv.weight"].squeeze(1)
    h = (frames(h, TAPS, 1) * kernel).sum(-1) + p["depthwise_conv.bias"]  # <- pad_leak
    h = standardize(p / "mid_norm", h)
    return affine(p / "pointwise_conv2", h * torch.sigmoid(h))


def encoder(p, feats, lengths):
    """feats [T, B, mels] -> log probabilities [T', B, units], lengths"""
    w = p["subsample.weight"]
    x = torch.einsum("tbck,dck->tbd", frames(feats, 3, 2), w) + p["subsample.bias"]
    x = x.clamp(min=0)
    lengths = (lengths + 1) // 2  # <- frame_lengths
    alive = (torch.arange(x.shape[0])[:, None] < lengths).float().unsqueeze(-1)  # <- frame_lengths
    key_bias = ((1 - alive) * -1e9).permute(1, 2, 0).repeat_interleave(HEADS, dim=0)
    for i in range(2):
        q = p / "blocks" / i
        x = torch.add(x, feed_forward(q / "ffn1", x), alpha=0.5)
        x = x + attention(q / "self_attn", standardize(q / "attn_norm", x), key_bias)
        x = x + conv_module(q / "conv", x, alive)
        x = torch.add(x, feed_forward(q / "ffn2", x), alpha=0.5)  # <- half_residual
        x = standardize(q / "final_norm", x)
    x = affine(p / "ctc_head", x)
    top = x.amax(-1, keepdim=True).detach()
    return x - top - (x - top).exp().sum(-1, keepdim=True).log(), lengths


flat = {k: v.requires_grad_() for k, v in torch.load(sys.argv[1], weights_only=True).items()}
speed = {k: torch.zeros_like(v) for k, v in flat.items()}
rng = torch.Generator().manual_seed(9)
losses = []
for _ in range(4):
    lengths = torch.tensor([24, 19, 13])
    feats = torch.randn(3, 24, 8, generator=rng).transpose(0, 1)
    feats = feats * (torch.arange(24)[:, None] < lengths).unsqueeze(-1)
    labels = torch.randint(1, 7, (3, 4), generator=rng)
    counts = torch.tensor([4, 3, 2])
    logp, spans = encoder(Scope(flat), feats, lengths)
    packed = torch.cat([row[:n] for row, n in zip(labels, counts.tolist())])
    nll = F.ctc_loss(logp, packed, spans, counts, reduction="none")  # <- frame_lengths
    loss = (nll / counts).mean()  # <- label_norm
    grads = torch.autograd.grad(loss, list(flat.values()))
    with torch.no_grad():
        for (k, w), g in zip(flat.items(), grads):
            speed[k] = 0.9 * speed[k] + g  # <- look_ahead
            w -= 0.02 * (g + 0.9 * speed[k])  # <- look_ahead
    losses.append(loss.item())
print(losses)
