# SPDX-License-Identifier: Apache-2.0
"""The GAN with the penalty's input gradient in closed form (transposed convolutions), so one backward is enough."""
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class Critic(NamedTuple):
    k1: torch.Tensor
    b1: torch.Tensor
    k2: torch.Tensor
    b2: torch.Tensor
    out: torch.Tensor           # 16, 2, 2
    bias: torch.Tensor


class Painter(NamedTuple):
    mix: torch.Tensor           # latent, channels, 2, 2
    mix_b: torch.Tensor
    layers: torch.Tensor        # both 3x3 kernels
    layers_b: torch.Tensor
    ink: torch.Tensor
    ink_b: torch.Tensor


class Adam:
    """No first moment (its beta is nought): a scaled gradient. State is keyed by place in the tuple."""

    def __init__(self, lr, beta=0.99, eps=1e-6):
        self.lr, self.beta, self.eps, self.t, self.v = lr, beta, eps, 0, None

    def __call__(self, params, grads):
        self.t += 1
        self.v = self.v or [torch.zeros_like(g) for g in grads]
        self.v = [torch.lerp(v, g * g, 1 - self.beta) for v, g in zip(self.v, grads)]
        fix = (1 - self.beta ** self.t) ** 0.5
        return type(params)(*[(p - self.lr * g / (v.sqrt() / fix + self.eps)).detach().requires_grad_()
                              for p, g, v in zip(params, grads, self.v)])


def load(path):
    sd = torch.load(path)
    d = Critic(sd["D.conv1.weight"], sd["D.conv1.bias"], sd["D.conv2.weight"], sd["D.conv2.bias"],
               sd["D.fc.weight"].view(-1, 2, 2), sd["D.fc.bias"])
    g = Painter(sd["G.fc.weight"].t().reshape(6, -1, 2, 2), sd["G.fc.bias"].view(-1, 2, 2),
                torch.stack([sd["G.conv1.weight"], sd["G.conv2.weight"]]),
                torch.stack([sd["G.conv1.bias"], sd["G.conv2.bias"]]),
                sd["G.to_gray.weight"].flatten(), sd["G.to_gray.bias"])
    fresh = lambda ts: type(ts)(*[t.clone().requires_grad_() for t in ts])
    return fresh(g), fresh(d)


def paint(g, z):
    z = z / z.square().mean(1, keepdim=True).add(1e-8).sqrt()
    x = F.leaky_relu(torch.tensordot(z, g.mix, 1) + g.mix_b, 0.2)
    for kernel, bias in zip(g.layers, g.layers_b):
        x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        x = F.conv2d(x, kernel, bias, padding=1)
        x = torch.maximum(x, 0.2 * x)
    return torch.tanh((x * g.ink[:, None, None]).sum(1, keepdim=True) + g.ink_b)


def judge(d, x, slope=False):
    a1 = F.conv2d(x, d.k1, d.b1, stride=2, padding=1)
    a2 = F.conv2d(a1.exp().log1p(), d.k2, d.b2, stride=2, padding=1)
    score = (a2.exp().log1p() * d.out).sum((1, 2, 3)) + d.bias
    if not slope:
        return score
    back = F.conv_transpose2d(d.out * a2.sigmoid(), d.k2, stride=2, padding=1)
    back = F.conv_transpose2d(back * a1.sigmoid(), d.k1, stride=2, padding=1)
    return score, back


def critic_loss(d, real, fake, penalise):
    if penalise:
        # one pass over both halves; the slope is looked at on the real half alone
        score, slope = judge(d, torch.cat([real, fake]), slope=True)
        extra = 2.0 * slope[:len(real)].square().sum() / len(real)
    else:
        score, extra = judge(d, torch.cat([real, fake])), 0.0
    sign = torch.ones(len(score))
    sign[:len(real)] = -1
    return (torch.logaddexp(sign * score, torch.zeros(()))).sum() / len(real) + extra


def real_images(gen):
    angle = torch.rand(8, generator=gen) * 6.28
    yy, xx = torch.meshgrid(*[torch.linspace(-1, 1, 8)] * 2, indexing="ij")
    flat = torch.stack([angle.cos(), angle.sin()], 1) @ torch.stack([yy, xx]).flatten(1)
    return torch.tanh(flat * 2).view(8, 1, 8, 8)


g, d = load(sys.argv[1])
step_g, step_d = Adam(2e-3), Adam(4e-3)
gen = torch.Generator().manual_seed(112)
losses, history = [], {"slope": [], "d": [], "g": []}
for step in range(5):
    real = real_images(gen)
    first, second = torch.randn(8, 6, generator=gen), torch.randn(8, 6, generator=gen)
    with torch.no_grad():
        fake = paint(g, first)
        history["slope"].append(judge(d, real, True)[1].norm().item())
    loss_d = critic_loss(d, real, fake, step % 2 == 0)
    d = step_d(d, torch.autograd.grad(loss_d, d))
    loss_g = -F.logsigmoid(judge(d, paint(g, second))).mean()
    g = step_g(g, torch.autograd.grad(loss_g, g))
    history["d"].append(loss_d.item())
    history["g"].append(loss_g.item())
    losses.extend((loss_d.item(), loss_g.item()))
print(losses)
