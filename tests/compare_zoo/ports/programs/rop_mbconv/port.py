# SPDX-License-Identifier: Apache-2.0
"""The inverted-bottleneck classifier in channels-last layout, every convolution written as shifted slices."""
import sys

import torch

torch.set_num_threads(1)


class Scope:
    """Holds variables under their paths; hands out trainable ones and buffers."""

    def __init__(self, checkpoint):
        self.train, self.stats = {}, {}
        for key, value in torch.load(checkpoint).items():
            if key.endswith("num_batches_tracked"):
                continue
            if "running_" in key:
                self.stats[key] = value.clone()
                continue
            if value.dim() == 4:
                value = value.permute(2, 3, 1, 0)
                if value.shape[:2] == (1, 1):
                    value = value[0, 0]
            elif key == "classifier.weight":
                value = value.T
            self.train[key] = value.clone(memory_format=torch.contiguous_format).requires_grad_()


class Net:
    MOMENTUM, EPS = 0.9, 1e-3  # <- bn_momentum

    def __init__(self, scope):
        self.w, self.stats, self.frozen = scope.train, scope.stats, False

    def shifts(self, x, stride):
        rows, cols = x.shape[1] // stride, x.shape[2] // stride
        x = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))  # <- same_padding
        for i in range(3):
            for j in range(3):
                yield i, j, x[:, i : i + stride * rows : stride, j : j + stride * cols : stride]  # <- same_padding

    def spatial(self, name, x, stride):
        kernel = self.w[name + ".0.weight"]
        return sum(tap @ kernel[i, j] for i, j, tap in self.shifts(x, stride))  # <- same_padding

    def per_channel(self, name, x, stride):
        kernel = self.w[name + ".0.weight"]
        return sum(tap * kernel[i, j, 0] for i, j, tap in self.shifts(x, stride))  # <- same_padding

    def normalise(self, name, x):
        mean_key, var_key = name + ".1.running_mean", name + ".1.running_var"
        if self.frozen:
            mean, var = self.stats[mean_key], self.stats[var_key]  # <- bn_momentum bn_biased_var
        else:
            flat = x.reshape(-1, x.shape[-1])
            mean = flat.mean(0)
            var = (flat - mean).pow(2).mean(0)
            count = flat.shape[0]
            wide = var.detach() * count / (count - 1)  # <- bn_biased_var
            for key, fresh in ((mean_key, mean.detach()), (var_key, wide)):  # <- bn_biased_var
                self.stats[key] = self.MOMENTUM * self.stats[key] + (1 - self.MOMENTUM) * fresh  # <- bn_momentum bn_biased_var
        scale = self.w[name + ".1.weight"] / torch.sqrt(var + self.EPS)
        return (x - mean) * scale + self.w[name + ".1.bias"]

    def gate(self, name, x):
        s = x.mean(dim=(1, 2))
        s = s @ self.w[name + ".fc1.weight"] + self.w[name + ".fc1.bias"]
        s = s * torch.sigmoid(s)
        s = s @ self.w[name + ".fc2.weight"] + self.w[name + ".fc2.bias"]
        return x * torch.sigmoid(s)[:, None, None, :]

    def bottleneck(self, name, x, stride, residual):
        y = x @ self.w[name + ".expand.0.weight"]
        y = swish(self.normalise(name + ".expand", y))
        y = swish(self.normalise(name + ".depthwise", self.per_channel(name + ".depthwise", y, stride)))
        y = self.gate(name + ".se", y) @ self.w[name + ".project.0.weight"]
        y = self.normalise(name + ".project", y)
        return x + y if residual else y

    def __call__(self, images):
        x = swish(self.normalise("stem", self.spatial("stem", images, 2)))
        for i, (stride, residual) in enumerate([(1, True), (2, False), (1, True)]):
            x = self.bottleneck(f"blocks.{i}", x, stride, residual)
        x = swish(self.normalise("head", x @ self.w["head.0.weight"]))
        return x.mean(dim=(1, 2)) @ self.w["classifier.weight"] + self.w["classifier.bias"]


def swish(x):
    return x * torch.sigmoid(x)


def smoothed_loss(logits, classes, amount=0.1):
    k = logits.shape[1]
    soft = torch.full_like(logits, amount / k)  # <- smoothing_off_target
    soft[torch.arange(len(classes)), classes] = 1 - amount + amount / k  # <- smoothing_off_target
    return -(soft * logits.log_softmax(1)).sum(1).mean()  # <- smoothing_off_target


class Momentum:
    def __init__(self, weights, lr=0.05, mu=0.9, l2=1e-4):
        self.weights, self.lr, self.mu, self.l2 = weights, lr, mu, l2
        self.velocity = {k: torch.zeros_like(w) for k, w in weights.items()}

    @torch.no_grad()
    def apply(self, grads):
        for (k, w), g in zip(self.weights.items(), grads):
            g = g + self.l2 * w
            v = self.velocity[k].mul_(self.mu).add_(g)
            w -= self.lr * (g + self.mu * v)  # <- nesterov_plain


def dataset(steps=5):
    gen = torch.Generator().manual_seed(4)
    centre = torch.randn(5, 3, 12, 12, generator=gen)
    for _ in range(steps):
        label = torch.randint(5, (8,), generator=gen)
        noise = torch.randn(8, 3, 12, 12, generator=gen)
        yield (centre[label] + 0.7 * noise).movedim(1, -1), label


scope = Scope(sys.argv[1])
net, optimiser = Net(scope), Momentum(scope.train)
losses = []
for step, (images, label) in enumerate(dataset()):
    net.frozen = step >= 3
    loss = smoothed_loss(net(images), label)  # <- smoothing_off_target
    optimiser.apply(torch.autograd.grad(loss, list(scope.train.values())))  # <- nesterov_plain
    losses.append(loss.item())
print(losses)
