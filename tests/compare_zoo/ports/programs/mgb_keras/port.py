# SPDX-License-Identifier: Apache-2.0
"""The texture CNN as in TensorFlow: NHWC tensors, HWIO kernels, own layers and RMSprop."""
import sys

import torch


def same(size, k, s):
    total = max((-(-size // s) - 1) * s + k - size, 0)
    return total // 2, total - total // 2


def patches(x, k, s):
    """NHWC -> N, H', W', C, k, k with "SAME" padding."""
    n, h, w, c = x.shape
    (t, b), (l, r) = same(h, k, s), same(w, k, s)
    rows = torch.cat([x.new_zeros(n, t, w, c), x, x.new_zeros(n, b, w, c)], 1)
    tall = rows.shape[1]
    full = torch.cat([x.new_zeros(n, tall, l, c), rows, x.new_zeros(n, tall, r, c)], 2)
    return full.unfold(1, k, s).unfold(2, k, s)


def conv2d(x, kernel, stride=1):
    return torch.einsum("nhwcij,ijco->nhwo", patches(x, kernel.shape[0], stride), kernel)


def depthwise_conv2d(x, kernel, stride):
    return torch.einsum("nhwcij,ijc->nhwc", patches(x, kernel.shape[0], stride), kernel)


def average_pool(x, k):
    inside = torch.ones_like(x[:1, :, :, :1])
    count = patches(inside, k, 1).sum((-1, -2))  # <- avg_border
    return patches(x, k, 1).sum((-1, -2)) / count  # <- avg_border


def batch_norm(x, gamma, beta, epsilon=1e-3):  # <- bn_eps
    var, mean = torch.var_mean(x, (0, 1, 2), correction=0)
    scale = gamma / torch.sqrt(var + epsilon)  # <- bn_eps
    return x * scale + (beta - mean * scale)  # <- bn_eps


class Model:
    def __init__(self, w):
        hwio = lambda k: k.permute(2, 3, 1, 0).contiguous()
        dense = w["fc1.weight"].reshape(24, 10, 6, 6)  # <- flatten_order
        self.v = {
            "conv/kernel": hwio(w["conv.weight"]), "conv/bias": w["conv.bias"],
            "sep/depthwise_kernel": hwio(w["unit.depthwise.weight"])[:, :, 0],
            "sep/pointwise_kernel": hwio(w["unit.pointwise.weight"]),
            "bn/gamma": w["unit.bn.weight"], "bn/beta": w["unit.bn.bias"],
            "dense/kernel": dense.permute(2, 3, 1, 0).reshape(360, 24),  # <- flatten_order
            "dense/bias": w["fc1.bias"],
            "logits/kernel": w["fc2.weight"].T, "logits/bias": w["fc2.bias"],
        }
        self.v = {k: t.clone().requires_grad_() for k, t in self.v.items()}

    def __call__(self, x):
        v = self.v
        x = conv2d(x, v["conv/kernel"]) + v["conv/bias"]
        x = torch.where(x > 0, x, torch.expm1(x))
        x = depthwise_conv2d(x, v["sep/depthwise_kernel"], 2)
        x = conv2d(x, v["sep/pointwise_kernel"])
        x = batch_norm(x, v["bn/gamma"], v["bn/beta"]).clamp(0, 6)
        x = average_pool(x, 3).reshape(len(x), -1)  # <- flatten_order
        x = torch.tanh(x @ v["dense/kernel"] + v["dense/bias"])  # <- flatten_order
        return x @ v["logits/kernel"] + v["logits/bias"]

    def regularization(self, l2=5e-3):
        kernels = [t for k, t in self.v.items() if k.endswith("kernel")]  # <- kernel_penalty
        return l2 * torch.stack([t.square().sum() for t in kernels]).sum()  # <- kernel_penalty


class RMSprop:
    def __init__(self, variables, learning_rate=2e-3, rho=0.9, momentum=0.5, epsilon=1e-7):
        self.variables, self.lr, self.rho = variables, learning_rate, rho  # <- rho
        self.momentum, self.epsilon = momentum, epsilon
        self.rms = [torch.zeros_like(v) for v in variables]
        self.mom = [torch.zeros_like(v) for v in variables]

    def apply_gradients(self, grads):
        with torch.no_grad():
            for var, g, rms, mom in zip(self.variables, grads, self.rms, self.mom):
                rms.copy_(self.rho * rms + (1 - self.rho) * g * g)  # <- rho
                mom.copy_(self.momentum * mom + self.lr * g / (rms.sqrt() + self.epsilon))  # <- rho
                var -= mom  # <- rho


def sparse_categorical_crossentropy(labels, logits):
    return (torch.logsumexp(logits, 1) - logits[torch.arange(len(labels)), labels]).mean()


model = Model(torch.load(sys.argv[1], weights_only=True))
optimizer = RMSprop(list(model.v.values()))
generator = torch.Generator().manual_seed(99)
data = torch.rand(40, 1, 12, 12, generator=generator).permute(0, 2, 3, 1)
target = torch.randint(0, 6, (40,), generator=generator)
losses = []
for x, y in zip(data.split(10), target.split(10)):
    loss = sparse_categorical_crossentropy(y, model(x))
    loss = loss + model.regularization()  # <- kernel_penalty
    optimizer.apply_gradients(torch.autograd.grad(loss, optimizer.variables))
    losses.append(loss.item())
print(losses)
