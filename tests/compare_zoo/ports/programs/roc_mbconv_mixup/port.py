# SPDX-License-Identifier: Apache-2.0
"""EfficientNet in channels-last: pointwise convs as matmuls, depthwise as shifted sums, soft mixed labels."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

K, N, HW, EPS = 6, 8, 12, 1e-3
# new name, old name of the conv, old name of the norm
UNITS = [("stem", "stem.0", "stem.1"), ("top", "top.0", "top.1")]
for b in "01":
    UNITS += [(f"b{b}/{n}", f"blocks.{b}.layers.{i}", f"blocks.{b}.layers.{i + 1}")
              for n, i in (("widen", 0), ("depth", 3), ("narrow", 7))]


def swish(x):
    return x * torch.sigmoid(x)


class EffNet:
    def __init__(self, path):
        old = torch.load(path)
        self.w, self.stats, self.frozen = {}, {}, False
        for new, conv, norm in UNITS:
            kernel = old[conv + ".weight"]
            if kernel.shape[2] == 1:
                kernel = kernel[:, :, 0, 0].T
            elif kernel.shape[1] == 1:
                kernel = kernel[:, 0].permute(1, 2, 0)
            else:
                kernel = kernel.permute(2, 3, 1, 0).flatten(0, 2)
            self.w[new] = kernel
            self.w[new + "/gamma"], self.w[new + "/beta"] = old[norm + ".weight"], old[norm + ".bias"]
            self.stats[new] = (old[norm + ".running_mean"], old[norm + ".running_var"])
        for b in "01":
            for part in ("reduce", "expand"):
                layer = f"blocks.{b}.layers.6.{part}"
                self.w[f"b{b}/{part}"] = old[layer + ".weight"][:, :, 0, 0].T
                self.w[f"b{b}/{part}/bias"] = old[layer + ".bias"]
        self.w["fc"], self.w["fc/bias"] = old["fc.weight"].T, old["fc.bias"]
        self.w = {k: v.clone().contiguous().requires_grad_() for k, v in self.w.items()}

    def batch_norm(self, name, x):
        mean, var = self.stats[name]
        if not self.frozen:
            flat = x.reshape(-1, x.shape[-1])
            n = len(flat)
            run_mean, run_var = mean, var
            mean = flat.mean(0)
            var = (flat - mean).square().mean(0)
            run_var = 0.9 * run_var + 0.1 * var.detach() * n / (n - 1)  # <- bn_momentum
            run_mean = 0.9 * run_mean + 0.1 * mean.detach()  # <- bn_momentum
            self.stats[name] = (run_mean, run_var)
        return (x - mean) * (self.w[name + "/gamma"] * torch.rsqrt(var + EPS)) + self.w[name + "/beta"]

    def depthwise(self, name, x, stride):
        kernel = self.w[name]
        _, h, w, _ = x.shape
        x = F.pad(x, (0, 0, 1, 1, 1, 1))  # <- same_pad
        out = 0
        for i in range(3):
            for j in range(3):
                out = out + x[:, i : i + h : stride, j : j + w : stride] * kernel[i, j]
        return out

    def gate(self, b, x):
        s = x.mean((1, 2))
        s = swish(s @ self.w[b + "/reduce"] + self.w[b + "/reduce/bias"])
        return x * torch.sigmoid(s @ self.w[b + "/expand"] + self.w[b + "/expand/bias"])[:, None, None]

    def block(self, b, x, stride):
        y = swish(self.batch_norm(b + "/widen", x @ self.w[b + "/widen"]))
        y = swish(self.batch_norm(b + "/depth", self.depthwise(b + "/depth", y, stride)))
        return self.batch_norm(b + "/narrow", self.gate(b, y) @ self.w[b + "/narrow"])

    def __call__(self, x):
        patches = F.pad(x, (0, 0, 1, 1, 1, 1)).unfold(1, 3, 1).unfold(2, 3, 1)
        patches = patches.permute(0, 1, 2, 4, 5, 3).flatten(3)
        x = swish(self.batch_norm("stem", patches @ self.w["stem"]))
        x = x + self.block("b0", x, 1)
        x = self.block("b1", x, 2)
        x = swish(self.batch_norm("top", x @ self.w["top"]))
        return x.mean((1, 2)) @ self.w["fc"] + self.w["fc/bias"]


def soft_labels(y):
    hot = F.one_hot(y, K).float()
    return hot * (1 - 0.1) + 0.1 / K  # <- smooth_k


def pipeline(count):
    rng = torch.Generator().manual_seed(6)
    centres = torch.randn(K, 3, HW, HW, generator=rng).permute(0, 2, 3, 1)
    for _ in range(count):
        y = torch.randint(0, K, (N,), generator=rng)
        x = centres[y] + 0.5 * torch.randn(N, 3, HW, HW, generator=rng).permute(0, 2, 3, 1)
        keep = 0.6 + 0.4 * torch.rand((), generator=rng)
        other = torch.randperm(N, generator=rng)
        target = soft_labels(y)
        target = keep * target + (1 - keep) * target[other]  # <- mixup_pair
        yield torch.lerp(x[other], x, keep), target


net = EffNet(sys.argv[1])
mean_square = {k: torch.ones_like(v) for k, v in net.w.items()}  # <- rms_start
momentum = {k: torch.zeros_like(v) for k, v in net.w.items()}
losses = []
for step, (images, target) in enumerate(pipeline(5)):
    net.frozen = step >= 3
    loss = -(target * F.log_softmax(net(images), -1)).sum(-1).mean()
    grads = torch.autograd.grad(loss, list(net.w.values()))
    rate = 0.05 * 0.9**step
    with torch.no_grad():
        for (name, w), g in zip(net.w.items(), grads):
            mean_square[name] = 0.9 * mean_square[name] + 0.1 * g * g
            scaled = g / torch.sqrt(mean_square[name] + 1e-3)
            momentum[name] = 0.9 * momentum[name] + rate * scaled
            w -= momentum[name]
    losses.append(loss.item())
print(losses)
