# SPDX-License-Identifier: Apache-2.0
"""Mean teacher on a functional EfficientNet: weights and statistics are two plain dicts of tensors."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

# (name, kernel, stride, gate, residual, has an expansion)
PLAN = [
    ("s0b0", 3, 1, True, True, False),
    ("s1b0", 3, 2, True, False, True),
    ("s1b1", 3, 1, True, True, True),
    ("s2b0", 5, 1, False, False, True),
]
BN_EPS, BN_MOMENTUM = 1e-3, 0.01  # <- bn_momentum


def short_name(key):
    """blocks.1.0.se.conv_reduce.weight -> s1b0/squeeze/w, for all the kinds of keys."""
    parts = key.split(".")
    leaf = {"weight": "w", "bias": "b", "running_mean": "mean", "running_var": "var"}[parts.pop()]
    if parts[0] == "blocks":
        prefix, parts = f"s{parts[1]}b{parts[2]}", [p for p in parts[3:] if p != "se"]
        separable = prefix == "s0b0"
    else:
        prefix, separable = "top", None
    name = parts[0]
    if separable is True:
        name = {"conv_dw": "depth", "bn1": "depth_bn", "conv_pw": "project", "bn2": "project_bn"}.get(name, name)
    elif separable is False:
        name = {"conv_pw": "expand", "bn1": "expand_bn", "conv_dw": "depth", "bn2": "depth_bn",
                "conv_pwl": "project", "bn3": "project_bn"}.get(name, name)
    name = {"conv_reduce": "squeeze", "conv_expand": "excite"}.get(name, name)
    return f"{prefix}/{name}/{leaf}"


def load(path):
    weights, stats = {}, {}
    for key, value in torch.load(path).items():
        if key.endswith("num_batches_tracked"):
            continue
        name = short_name(key)
        (stats if name.endswith(("mean", "var")) else weights)[name] = value.clone()
    return weights, stats


class Net:
    """One evaluation of the network on given weights and statistics."""

    def __init__(self, weights, stats, training):
        self.w, self.s, self.training = weights, stats, training

    def conv(self, x, n, **kw):
        return F.conv2d(x, self.w[n + "/w"], self.w.get(n + "/b"), **kw)

    def norm(self, x, n):
        mean, var = self.s[n + "/mean"], self.s[n + "/var"]
        if self.training:
            count = x.numel() / x.size(1)
            now_var, now_mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            with torch.no_grad():
                mean.lerp_(now_mean, BN_MOMENTUM)  # <- bn_momentum
                var.lerp_(now_var * count / (count - 1), BN_MOMENTUM)  # <- bn_momentum
            mean, var = now_mean, now_var
        scale = self.w[n + "/w"] * torch.rsqrt(var + BN_EPS)
        return x * scale[:, None, None] + (self.w[n + "/b"] - mean * scale)[:, None, None]

    def block(self, x, n, kernel, stride, gate, residual, wide):
        y = F.silu(self.norm(self.conv(x, n + "/expand"), n + "/expand_bn")) if wide else x
        y = self.conv(y, n + "/depth", stride=stride, padding=kernel // 2, groups=y.size(1))
        y = F.silu(self.norm(y, n + "/depth_bn"))
        if gate:
            pooled = F.adaptive_avg_pool2d(y, 1)
            hidden = F.silu(self.conv(pooled, n + "/squeeze"))  # <- se_activation
            y = y * torch.sigmoid(self.conv(hidden, n + "/excite"))
        y = self.norm(self.conv(y, n + "/project"), n + "/project_bn")
        return x + y if residual else y

    def __call__(self, x):
        x = F.silu(self.norm(self.conv(x, "top/conv_stem", stride=2, padding=1), "top/bn1"))
        for row in PLAN:
            x = self.block(x, *row)
        x = F.silu(self.norm(self.conv(x, "top/conv_head"), "top/bn2"))
        return F.linear(x.mean((2, 3)), self.w["top/classifier/w"], self.w["top/classifier/b"])


def rmsprop_tf(weights, grads, slots, lr=0.02, rho=0.9, momentum=0.9, eps=1e-3, l2=1e-3):
    for n, w in weights.items():
        if n not in slots:
            slots[n] = (torch.ones_like(w), torch.zeros_like(w))  # <- rms_start
        ms, mom = slots[n]
        g = grads[n] + (l2 * w if w.ndim > 1 else 0)
        ms.copy_(rho * ms + (1 - rho) * g * g)  # <- rms_start
        mom.copy_(momentum * mom + lr * g / (ms + eps).sqrt())  # <- rms_start
        w.sub_(mom)


def follow(slow, fast, decay=0.8):
    for n in slow:
        slow[n].mul_(decay).add_(fast[n], alpha=1 - decay)  # <- teacher_buffers


g = torch.Generator().manual_seed(400)
templates = torch.randn(6, 3, 16, 16, generator=g)
labels = torch.randint(0, 6, (40,), generator=g)
clean = templates[labels] + torch.randn(40, 3, 16, 16, generator=g) * 0.3
noisy = clean + torch.randn(40, 3, 16, 16, generator=g) * 0.2

weights, stats = load(sys.argv[1])
slow_weights, slow_stats = load(sys.argv[1])
slots, losses = {}, []
for start in range(0, 40, 8):
    batch = slice(start, start + 8)
    leaves = {n: w.detach().requires_grad_() for n, w in weights.items()}
    logp = Net(leaves, stats, True)(noisy[batch]).log_softmax(1)  # <- bn_momentum se_activation
    opinion = Net(slow_weights, slow_stats, False)(clean[batch]).softmax(1)  # <- teacher_buffers se_activation
    agreement = F.mse_loss(logp.exp(), opinion, reduction="sum") / 8  # <- agreement_mean
    known = logp[:4]
    right = F.nll_loss(known, labels[batch][:4])
    loss = 0.9 * right - 0.1 * known.mean() + 4.0 * agreement  # <- agreement_mean
    grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    with torch.no_grad():
        rmsprop_tf(weights, grads, slots)  # <- rms_start
        follow(slow_weights, weights)
        follow(slow_stats, stats)  # <- teacher_buffers
    losses.append(loss.item())
print(losses)
