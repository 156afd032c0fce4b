# SPDX-License-Identifier: Apache-2.0
"""The residual network in NHWC, with its own BatchNorm and momentum, after a Keras code base."""
import sys

import torch
from torch import Tensor

torch.set_num_threads(1)


class Variable:
    """A named weight; `trainable=False` holds the moving statistics."""

    def __init__(self, value, trainable=True):
        self.value = value.clone().contiguous()
        self.value.requires_grad_(trainable)
        self.trainable = trainable


class Conv:
    """Kernel is (kh, kw, in, out); the picture is cut into windows and multiplied."""

    def __init__(self, weight, stride=1):
        self.kernel = Variable(weight.permute(2, 3, 1, 0))
        self.stride = stride

    def __call__(self, x: Tensor) -> Tensor:
        kh, kw, cin, cout = self.kernel.value.shape
        pad = kh // 2
        x = torch.nn.functional.pad(x, (0, 0, pad, pad, pad, pad))
        windows = x.unfold(1, kh, self.stride).unfold(2, kw, self.stride)
        return torch.einsum("bhwcij,ijco->bhwo", windows, self.kernel.value)


class BatchNorm:
    epsilon = 1e-5  # <- norm_epsilon

    def __init__(self, ck, name, keep=0.9):
        self.gamma, self.beta = Variable(ck[name + ".weight"]), Variable(ck[name + ".bias"])
        self.moving_mean = Variable(ck[name + ".running_mean"], trainable=False)
        self.moving_var = Variable(ck[name + ".running_var"], trainable=False)
        self.keep = keep

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        if training:
            flat = x.reshape(-1, x.shape[-1])  # <- stats_detached
            mean, var = flat.mean(0), flat.var(0, correction=0)  # <- stats_detached
            self.remember(mean.detach(), var.detach(), len(flat))
        else:
            mean, var = self.moving_mean.value, self.moving_var.value
        scale = self.gamma.value / (var + self.epsilon).sqrt()  # <- norm_epsilon
        return x * scale + (self.beta.value - mean * scale)

    def remember(self, mean, var, count):
        var = var * (count / (count - 1))
        for old, new in ((self.moving_mean, mean), (self.moving_var, var)):
            old.value = self.keep * old.value + (1 - self.keep) * new  # <- running_momentum


class Residual:
    def __init__(self, ck, name, stride):
        self.first, self.first_norm = Conv(ck[name + ".conv1.weight"], stride), BatchNorm(ck, name + ".bn1")
        self.second, self.second_norm = Conv(ck[name + ".conv2.weight"]), BatchNorm(ck, name + ".bn2")
        self.short = None
        if name + ".downsample.0.weight" in ck:
            self.short = Conv(ck[name + ".downsample.0.weight"], stride)
            self.short_norm = BatchNorm(ck, name + ".downsample.1")

    def __call__(self, x, training):
        branch = self.first_norm(self.first(x), training).clamp_min(0)
        branch = self.second_norm(self.second(branch), training)
        if self.short is not None:
            x = self.short_norm(self.short(x), training)
        return (x + branch).clamp_min(0)


class Network:
    def __init__(self, path):
        ck = torch.load(path)
        self.stem, self.stem_norm = Conv(ck["conv1.weight"]), BatchNorm(ck, "bn1")
        self.stages = [Residual(ck, "layer1", 1), Residual(ck, "layer2", 2)]
        self.out_kernel, self.out_bias = Variable(ck["fc.weight"].T), Variable(ck["fc.bias"])

    def __call__(self, x, training=False):
        x = self.stem_norm(self.stem(x), training).clamp_min(0)
        for stage in self.stages:
            x = stage(x, training)
        return x.flatten(1, 2).mean(1) @ self.out_kernel.value + self.out_bias.value


def trainable(thing):
    found = []
    for part in vars(thing).values():
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, Variable):
                found += [item] if item.trainable else []
            elif hasattr(item, "__dict__"):
                found += trainable(item)
    return found


class Momentum:
    def __init__(self, variables, rate=0.05, mu=0.9, l2=5e-4):
        self.variables, self.rate, self.mu, self.l2 = variables, rate, mu, l2
        self.velocity = [torch.zeros_like(v.value) for v in variables]

    @torch.no_grad()
    def apply(self, grads):
        for i, (var, g) in enumerate(zip(self.variables, grads)):
            g = g + self.l2 * var.value
            self.velocity[i] = self.mu * self.velocity[i] - self.rate * g
            var.value += self.mu * self.velocity[i] - self.rate * g  # <- plain_momentum


def xent(logits, labels):
    return torch.nn.functional.nll_loss(logits.log_softmax(1), labels)


def draw(gen, n):
    labels = torch.randint(0, 5, (n,), generator=gen)
    pictures = (torch.randn(n, 3, 8, 8, generator=gen) * 1.5 + 0.5).permute(0, 2, 3, 1).contiguous()
    ramp = torch.linspace(-1, 1, 8)
    pictures[..., 0] += ramp[None, None, :] * (labels - 2)[:, None, None]
    pictures[..., 1] += 0.7 * ramp[None, :, None]
    return pictures, labels


def random_flip(pictures, gen):
    chosen = torch.rand(len(pictures), generator=gen) < 0.5
    flipped = torch.flip(pictures[chosen], dims=(2,))  # <- flip_axis
    pictures[chosen] = flipped  # <- flip_axis
    return pictures


network = Network(sys.argv[1])
variables = trainable(network)
rule = Momentum(variables)
gen = torch.Generator().manual_seed(77)
held = draw(gen, 12)
losses = []
for _ in range(5):
    pictures, labels = draw(gen, 4)
    loss = xent(network(random_flip(pictures, gen), training=True), labels)
    rule.apply(torch.autograd.grad(loss, [v.value for v in variables]))
    with torch.no_grad():
        losses.append(loss.item() + xent(network(held[0]), held[1]).item())
print(losses)
