# SPDX-License-Identifier: Apache-2.0
"""WaveNet with windows and matrix products instead of convolutions, time before channels."""
import sys

import torch
from torch import Tensor

torch.set_num_threads(1)

LEVELS, WIDE, TAPS, DILATION = 32, 12, 3, [2 ** i for i in range(3)]
RUN_UP = (TAPS - 1) * sum(DILATION)


class NormedMatrix:
    """A (taps * in, out) matrix: directions v, lengths g, one column for each output channel."""

    def __init__(self, sd, prefix):
        v = sd[prefix + ".parametrizations.weight.original1"]
        self.rows = v.shape[1]
        self.v = v.permute(2, 1, 0).reshape(-1, v.shape[0]).contiguous().requires_grad_()
        self.g = sd[prefix + ".parametrizations.weight.original0"].flatten().requires_grad_()
        self.b = sd[prefix + ".bias"].requires_grad_()

    def parameters(self):
        return [self.v, self.g, self.b]

    def __call__(self, x: Tensor) -> Tensor:
        length = self.v.pow(2).sum(0).sqrt()  # <- norm_detached
        return x @ (self.v * (self.g / length)) + self.b  # <- norm_detached


class PlainMatrix:
    def __init__(self, sd, prefix):
        self.w = sd[prefix + ".weight"].squeeze(2).T.contiguous().requires_grad_()
        self.b = sd[prefix + ".bias"].requires_grad_()

    def parameters(self):
        return [self.w, self.b]

    def __call__(self, x):
        return x @ self.w + self.b


def windows(x: Tensor, dilation: int) -> Tensor:
    """(b, t, c) -> (b, t, taps * c): each step beside its predecessors, the oldest first."""
    span = (TAPS - 1) * dilation
    before, after = span, 0  # <- same_padding
    padded = torch.nn.functional.pad(x, (0, 0, before, after))  # <- same_padding
    seen = padded.unfold(1, span + 1, 1)[..., ::dilation]  # <- same_padding
    return seen.transpose(2, 3).flatten(2)


class Layer:
    def __init__(self, sd, index):
        at = f"blocks.{index}."
        self.dilation = DILATION[index]
        self.gated = NormedMatrix(sd, at + "dilated.conv")
        self.onward, self.out = NormedMatrix(sd, at + "to_residual"), NormedMatrix(sd, at + "to_skip")

    def parameters(self):
        return self.gated.parameters() + self.onward.parameters() + self.out.parameters()

    def __call__(self, x):
        z = self.gated(windows(x, self.dilation))  # <- same_padding norm_detached
        h = z[..., :WIDE].tanh() * z[..., WIDE:].sigmoid()  # <- gate_swapped
        return (x + self.onward(h)) / 2 ** 0.5, self.out(h)  # <- norm_detached


class Net:
    def __init__(self, path):
        sd = torch.load(path)
        self.table = sd["embed.weight"].requires_grad_()
        self.layers = [Layer(sd, i) for i in range(len(DILATION))]
        self.post = [PlainMatrix(sd, "head1"), PlainMatrix(sd, "head2")]

    def parameters(self):
        return [self.table] + [p for part in self.layers + self.post for p in part.parameters()]

    def __call__(self, codes):
        x, outs = torch.nn.functional.one_hot(codes, LEVELS).float() @ self.table, []
        for layer in self.layers:
            x, out = layer(x)
            outs.append(out)
        y = torch.stack(outs).sum(0).clamp_min(0)
        return self.post[1](self.post[0](y).clamp_min(0))


def quantise(wave):
    top = LEVELS - 1
    squeezed = wave.sign() * (1 + top * wave.abs()).log() / torch.tensor(1.0 + top).log()
    return torch.floor((squeezed + 1) * 0.5 * top + 0.5).to(torch.int64)  # <- mulaw_floor


def sound(seed, rows=4, n=41):
    rng = torch.Generator().manual_seed(seed)
    tau = 2 * torch.pi
    while True:
        f = torch.rand(rows, 2, 1, generator=rng) * 0.2 + 0.02
        start = torch.rand(rows, 2, 1, generator=rng) * tau
        tones = torch.sin(tau * f * torch.arange(n) + start)
        clean = 0.4 * (tones[:, 0] + tones[:, 1])
        yield torch.clip(clean + 0.05 * torch.randn(rows, n, generator=rng), -1, 1)


class RmsProp:
    def __init__(self, params, rho, eps):
        self.params, self.rho, self.eps = params, rho, eps
        self.slots = [torch.zeros_like(p.data) for p in params]  # <- rms_ones

    @torch.no_grad()
    def minimise(self, cost, rate):
        grads = torch.autograd.grad(cost, self.params, allow_unused=True)
        for p, g, slot in zip(self.params, grads, self.slots):
            if g is None:  # the last layer hands nothing onward
                continue
            slot.lerp_(g.square(), 1 - self.rho)  # <- rms_ones
            p -= rate * g / (slot.sqrt() + self.eps)  # <- rms_ones


net = Net(sys.argv[1])
optimiser = RmsProp(net.parameters(), rho=0.9, eps=1e-6)
source, losses = sound(12), []
for step in range(5):
    codes = quantise(next(source))  # <- mulaw_floor
    scores = net(codes[:, :-1])[:, RUN_UP:].flatten(0, 1)
    wanted = codes[:, RUN_UP + 1:].flatten()
    logp = scores - scores.exp().sum(-1, keepdim=True).log()
    cost = -logp[range(len(wanted)), wanted].mean()
    optimiser.minimise(cost, rate=6e-3 * 0.9 ** step)  # <- rms_ones
    losses.append(cost.item())
print(losses)
