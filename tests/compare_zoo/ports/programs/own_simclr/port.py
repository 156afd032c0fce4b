# SPDX-License-Identifier: Apache-2.0
"""SimCLR channels last: convolutions as matrix products of patches, views side by side, own SGD."""

import sys

import torch

N, S = 6, 12


class Net:
    """Weights by name (HWIO kernels), running statistics by name, and a forward pass."""

    def __init__(self, theirs):
        self.weights, self.stats, self.training = {}, {}, True
        for name, tensor in theirs.items():
            value = tensor
            if name.endswith("num_batches_tracked"):
                continue
            if "running" in name:
                self.stats[name] = value.clone()
                continue
            if value.dim() == 4:
                value = value.permute(2, 3, 1, 0)
            elif name == "projector.0.weight":
                value = value.view(20, 16, 3, 3).permute(2, 3, 1, 0).reshape(-1, 20)  # <- flattened
            elif value.dim() == 2:
                value = value.t()
            self.weights[name] = value.clone().contiguous().requires_grad_()

    def conv(self, x, name, stride=1):
        kernel = self.weights[f"{name}.weight"]
        size = len(kernel)
        if size > 1:
            x = torch.constant_pad_nd(x, (0, 0, 1, 1, 1, 1))  # <- padded
        patches = x.unfold(1, size, stride).unfold(2, size, stride)  # <- padded
        return torch.tensordot(patches, kernel.permute(2, 0, 1, 3), 3)  # <- padded

    def norm(self, x, name):
        axes = tuple(range(x.dim() - 1))
        if self.training:
            count = x[..., 0].numel()
            mean = x.mean(axes)
            var = ((x - mean) ** 2).mean(axes)
            with torch.no_grad():
                unbiased = var * count / (count - 1)  # <- variance
                self.stats[f"{name}.running_mean"].lerp_(mean, 0.1)
                self.stats[f"{name}.running_var"].lerp_(unbiased, 0.1)  # <- variance
        else:
            mean = self.stats[f"{name}.running_mean"]
            var = self.stats[f"{name}.running_var"]  # <- variance
        scale = self.weights[f"{name}.weight"] / (var + 1e-5).sqrt()  # <- variance
        return x * scale + (self.weights[f"{name}.bias"] - mean * scale)  # <- variance

    def block(self, x, name, stride):
        y = self.norm(self.conv(x, f"{name}.conv1", stride), f"{name}.bn1").clamp(min=0)
        y = self.norm(self.conv(y, f"{name}.conv2"), f"{name}.bn2")
        if stride > 1:
            x = self.norm(self.conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
        return (x + y).clamp(min=0)

    def __call__(self, x):
        x = self.norm(self.conv(x, "conv1"), "bn1").clamp(min=0)
        for n, stride in enumerate((1, 2, 2), 1):
            x = self.block(x, f"layer{n}", stride)
        x = x.reshape(len(x), -1) @ self.weights["projector.0.weight"]  # <- flattened
        x = self.norm(x, "projector.1").clamp(min=0)
        x = torch.addmm(self.weights["projector.3.bias"], x, self.weights["projector.3.weight"])
        return x / x.square().sum(1, keepdim=True).sqrt()


def contrastive(z):
    """Rows 2i and 2i + 1 are views of one image."""
    a = z.view(N, 2, -1)
    positive = 2 * (a[:, 0] * a[:, 1]).sum(-1)
    everything = torch.exp(2 * torch.einsum("id,jd->ij", z, z))
    everything = everything - everything.diagonal().diag()  # <- itself
    return everything.sum(1).log().mean() - positive.mean()  # <- itself


def distort(images, rng):
    mirrored = torch.rand(N, generator=rng) < 0.5
    images = torch.stack([x.flip(1) if m else x for x, m in zip(images, mirrored, strict=True)])
    light = torch.rand(N, generator=rng) + 0.5
    noise = torch.randn(N, 3, S, S, generator=rng).permute(0, 2, 3, 1)
    return torch.einsum("nhwc,n->nhwc", images, light) + 0.1 * noise


def views(rng):
    images = torch.randn(N, 3, S, S, generator=rng).permute(0, 2, 3, 1)
    both = [distort(images, rng) for _ in range(2)]
    return torch.stack(both, 1).flatten(0, 1)


net = Net(torch.load(sys.argv[1]))
velocity = {name: torch.zeros_like(w) for name, w in net.weights.items()}
rng = torch.Generator().manual_seed(22)
losses = []
for _ in range(3):
    loss = contrastive(net(views(rng)))
    grads = torch.autograd.grad(loss, list(net.weights.values()))
    with torch.no_grad():
        for (name, w), g in zip(net.weights.items(), grads, strict=True):
            if w.dim() > 1:  # <- decay
                g.add_(w, alpha=0.05)  # <- decay
            velocity[name].mul_(0.9).add_(g)
            w.sub_(0.05 * (g + 0.9 * velocity[name]))  # <- decay
    losses.append(loss.item())
net.training = False
with torch.no_grad():
    losses.append(contrastive(net(views(rng))).item())
