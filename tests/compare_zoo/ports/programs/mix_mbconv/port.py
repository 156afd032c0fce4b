# SPDX-License-Identifier: Apache-2.0
"""Channels-last mobile bottleneck network: 1x1 convs are matmuls, depthwise is a sum of shifts."""

import sys

import torch

WIDTHS = {"blocks.0": (8, 8, 1), "blocks.1": (8, 12, 2)}


def to_nhwc(sd):
    out = {}
    for k, v in sd.items():
        if "running" in k or "num_batches" in k:
            continue
        if v.dim() == 4 and "conv_dw" in k:
            v = v[:, 0].permute(1, 2, 0)
        elif v.dim() == 4 and v.shape[-1] == 1:
            v = v[:, :, 0, 0].t()
        elif v.dim() == 4:
            v = v.permute(2, 3, 1, 0).reshape(-1, v.shape[0])
        elif v.dim() == 2:
            v = v.t()
        out[k] = v.contiguous().clone()
    return out


def swish(t):
    return t * torch.sigmoid(t)


def bn(p, key, t):
    var, mu = torch.var_mean(t, dim=(0, 1, 2), correction=0)  # <- biased_var
    gain = p[key + ".weight"] * torch.rsqrt(var + 1e-3)  # <- biased_var
    return t * gain + (p[key + ".bias"] - mu * gain)


def frame(t, lo, hi):
    b, h, w, c = t.shape
    canvas = t.new_zeros(b, h + lo + hi, w + lo + hi, c)
    canvas[:, lo : lo + h, lo : lo + w] = t
    return canvas


def windows(t, stride):
    out_h = (t.shape[1] - 3) // stride + 1
    span = stride * (out_h - 1) + 1
    return [t[:, i : i + span : stride, j : j + span : stride] for i in range(3) for j in range(3)]


def depthwise(t, kernel, stride):
    lo, hi = (1, 1) if stride == 1 else (0, 1)  # <- same_pad
    taps = windows(frame(t, lo, hi), stride)  # <- same_pad
    return sum(k * v for k, v in zip(kernel.flatten(0, 1), taps))


def mbconv(p, key, t):
    cin, cout, stride = WIDTHS[key]
    h = swish(bn(p, key + ".bn1", t @ p[key + ".conv_pw.weight"]))
    h = swish(bn(p, key + ".bn2", depthwise(h, p[key + ".conv_dw.weight"], stride)))
    pooled = h.mean((1, 2))
    small = pooled @ p[key + ".se.conv_reduce.weight"] + p[key + ".se.conv_reduce.bias"]
    wide = swish(small) @ p[key + ".se.conv_expand.weight"]  # <- squeeze_act
    h = h * torch.sigmoid(wide + p[key + ".se.conv_expand.bias"])[:, None, None]
    h = bn(p, key + ".bn3", h @ p[key + ".conv_pwl.weight"])
    return t + h if (cin, stride) == (cout, 1) else h


def logits(p, img):
    cols = torch.cat(windows(frame(img, 1, 1), 1), -1)
    h = swish(bn(p, "bn1", cols @ p["conv_stem.weight"]))
    for key in WIDTHS:
        h = mbconv(p, key, h)
    return h.mean((1, 2)) @ p["classifier.weight"] + p["classifier.bias"]


student = to_nhwc(torch.load(sys.argv[1], weights_only=True))
average = {k: v.clone() for k, v in student.items()}
for v in student.values():
    v.requires_grad_()
sq = {k: torch.zeros_like(v) for k, v in student.items()}
buf = {k: torch.zeros_like(v) for k, v in student.items()}

g = torch.Generator().manual_seed(13)
pictures = torch.randn(4, 6, 3, 8, 8, generator=g).permute(0, 1, 3, 4, 2).contiguous()
answers = torch.randint(0, 6, (4, 6), generator=g)

losses = []
for n in range(4):
    out = logits(student, pictures[n]).log_softmax(-1)
    with torch.no_grad():
        ref = logits(average, pictures[n]).log_softmax(-1)
    hard = -out[torch.arange(6), answers[n]].mean()
    loss = hard + 2.0 * (ref.exp() * (ref - out)).sum() / 6
    grads = torch.autograd.grad(loss, list(student.values()))
    with torch.no_grad():
        for (k, w), d in zip(student.items(), grads):
            sq[k] = 0.9 * sq[k] + 0.1 * d * d
            buf[k] = 0.9 * buf[k] + d / (sq[k].sqrt() + 1e-3)  # <- eps_inside
            w -= 2e-3 * buf[k]
            average[k].lerp_(w, 0.2)  # <- ema_decay
    losses.append(loss.item())
print(losses)
