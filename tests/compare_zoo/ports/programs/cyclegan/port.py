# SPDX-License-Identifier: Apache-2.0
"""The same CycleGAN as one has it in TensorFlow: channels last, kernels height, width, in, out, layers
as functions, an Adam with slots for each pair of networks.
"""

import sys

import numpy as np
import torch


def conv2d(x, layer, strides=1):
    kernel, bias = layer
    height, width = kernel.shape[:2]
    rows = (x.shape[1] - height) // strides + 1
    columns = (x.shape[2] - width) // strides + 1
    patches = x.unfold(1, height, strides).unfold(2, width, strides)
    patches = patches.reshape(-1, kernel.shape[2] * height * width)
    matrix = kernel.permute(2, 0, 1, 3).reshape(patches.shape[1], -1)
    return (patches @ matrix + bias).reshape(x.shape[0], rows, columns, -1)


def conv2d_transpose(x, layer):
    """A kernel of three, stride two, twice the size."""
    kernel, bias = layer
    b, h, w, _ = x.shape
    canvas = x.new_zeros(b, 2 * h + 1, 2 * w + 1, kernel.shape[-1])
    for i in range(3):
        for j in range(3):
            landed = torch.zeros_like(canvas)
            landed[:, i : i + 2 * h : 2, j : j + 2 * w : 2] = x @ kernel[i, j]  # <- upward
            canvas = canvas + landed  # <- upward
    return canvas[:, 1:, 1:] + bias


def pad_reflect(x):
    def at(n):
        return [1, *range(n), n - 2]  # <- reflect

    return x[:, at(x.shape[1])][:, :, at(x.shape[2])]  # <- reflect


def pad_zeros(x):
    return torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))


def instance_norm(x, epsilon=1e-5):
    variance, mean = torch.var_mean(x, dim=(1, 2), correction=0, keepdim=True)  # <- instance
    return (x - mean) * torch.rsqrt(variance + epsilon)  # <- eps instance


def leaky_relu(x, alpha=0.2):
    return torch.maximum(alpha * x, x)  # <- slope


def generator(net, image):
    x = torch.relu(instance_norm(conv2d(pad_reflect(image), net["first"])))
    x = torch.relu(instance_norm(conv2d(pad_zeros(x), net["down"], strides=2)))
    y = torch.relu(instance_norm(conv2d(pad_reflect(x), net["block.conv1"])))
    x = x + instance_norm(conv2d(pad_reflect(y), net["block.conv2"]))
    x = torch.relu(instance_norm(conv2d_transpose(x, net["up"])))
    return torch.tanh(conv2d(pad_reflect(x), net["last"]))


def discriminator(net, image):
    x = leaky_relu(conv2d(pad_zeros(image), net["conv1"], strides=2))
    x = leaky_relu(instance_norm(conv2d(pad_zeros(x), net["conv2"], strides=2)))
    return conv2d(pad_zeros(x), net["conv3"])


def absolute(a, b):
    return (a - b).abs().mean()


def generators_loss(nets, x, y, weight=10.0):
    g, f = nets["g"], nets["f"]
    fake_y, fake_x = generator(g, x), generator(f, y)
    adversarial = (discriminator(nets["d_y"], fake_y) - 1).square().mean()
    adversarial = adversarial + (discriminator(nets["d_x"], fake_x) - 1).square().mean()
    cycle = absolute(generator(f, fake_y), x) + absolute(generator(g, fake_x), y)
    same = absolute(generator(g, y), y) + absolute(generator(f, x), x)  # <- identity
    total = adversarial + weight * cycle
    total = total + 0.5 * weight * same  # <- identity
    return total, fake_y.detach(), fake_x.detach()


def discriminator_loss(net, real, fake):
    real_loss = (discriminator(net, real) - 1).square().mean()
    fake_loss = discriminator(net, fake).square().mean()
    return 0.5 * (real_loss + fake_loss)  # <- half


def network_from(state, prefix):
    net = {}
    for name in state:
        if name.startswith(f"{prefix}.") and name.endswith(".weight"):
            layer = name.removeprefix(f"{prefix}.").removesuffix(".weight")
            order = (2, 3, 0, 1) if layer == "up" else (2, 3, 1, 0)  # <- upward
            kernel = state[name].permute(order).contiguous()
            net[layer] = [kernel, state[name.replace("weight", "bias")]]
    return net


class Adam:
    def __init__(self, *nets, learning_rate=2e-3, beta_1=0.5, beta_2=0.999, epsilon=1e-8):
        self.variables = [v.requires_grad_() for n in nets for layer in n.values() for v in layer]
        self.slots = [(torch.zeros_like(v), torch.zeros_like(v)) for v in self.variables]
        self.rate, self.betas, self.epsilon = learning_rate, (beta_1, beta_2), epsilon
        self.iterations = 0

    def minimize(self, loss):
        gradients = torch.autograd.grad(loss, self.variables)
        self.iterations += 1
        one, two = self.betas
        with torch.no_grad():
            for variable, gradient, (m, v) in zip(self.variables, gradients, self.slots):
                m.add_((gradient - m) * (1 - one))  # <- betas
                v.add_((gradient.square() - v) * (1 - two))
                root = torch.sqrt(v / (1 - two**self.iterations)) + self.epsilon
                variable.sub_(self.rate * m / (1 - one**self.iterations) / root)  # <- betas


names = {"g": "netG_A", "f": "netG_B", "d_y": "netD_A", "d_x": "netD_B"}
checkpoint = torch.load(sys.argv[1])
nets = {name: network_from(checkpoint, prefix) for name, prefix in names.items()}
generators, discriminators = Adam(nets["g"], nets["f"]), Adam(nets["d_y"], nets["d_x"])
rng = np.random.default_rng(72)
losses = []
for _ in range(3):
    images = rng.uniform(-1, 1, (2, 2, 3, 16, 16)).astype(np.float32)
    x, y = torch.tensor(images).movedim(2, -1)
    loss, fake_y, fake_x = generators_loss(nets, x, y)
    generators.minimize(loss)
    y_loss = discriminator_loss(nets["d_y"], y, fake_y)
    x_loss = discriminator_loss(nets["d_x"], x, fake_x)
    discriminators.minimize(y_loss + x_loss)
    losses += [loss.item(), y_loss.item(), x_loss.item()]
