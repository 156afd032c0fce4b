# SPDX-License-Identifier: Apache-2.0
"""Semi-supervised images channel-last: gathered views, one joint forward, SGD in backward hooks, flat average."""
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)

S, K, NL, NU, STEPS = 8, 4, 6, 10, 6


class PatchConv(nn.Module):
    """3x3 convolution as a gather of neighbours and one matrix product, image last axis is channels."""

    def __init__(self, fan_in, fan_out, stride, groups):
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(9 * fan_in, fan_out))
        self.affine = nn.Parameter(torch.empty(2, fan_out))
        self.stride, self.groups = stride, groups

    def forward(self, x):
        x = nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
        high, wide = x.shape[1] - 2, x.shape[2] - 2
        taps = [x[:, r:r + high:self.stride, c:c + wide:self.stride] for r in range(3) for c in range(3)]
        x = torch.cat(taps, -1) @ self.matrix
        grouped = x.unflatten(-1, (self.groups, -1))
        var, mean = torch.var_mean(grouped, (1, 2, 4), keepdim=True, correction=0)
        x = ((grouped - mean) / (var + 1e-5).sqrt()).flatten(-2) * self.affine[0] + self.affine[1]
        return torch.maximum(x, 0.1 * x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleList([PatchConv(2, 8, 1, 2), PatchConv(8, 12, 2, 3)])
        self.read = nn.Parameter(torch.empty(13, K))           # last row is the bias

    def forward(self, x):
        for conv in self.body:
            x = conv(x)
        pooled = x.flatten(1, 2).mean(1)
        return torch.cat([pooled, torch.ones_like(pooled[:, :1])], 1) @ self.read

    @torch.no_grad()
    def take(self, sd):
        for conv, (w, n) in zip(self.body, ((0, 1), (3, 4))):
            kernel = sd[f"features.{w}.weight"]                  # out, in, row, column
            conv.matrix.copy_(kernel.permute(2, 3, 1, 0).reshape(conv.matrix.shape))
            conv.affine.copy_(torch.stack([sd[f"features.{n}.weight"], sd[f"features.{n}.bias"]]))
        self.read.copy_(torch.cat([sd["fc.weight"].T, sd["fc.bias"][None]]))


def gather_view(images, rng):
    """Flip and shift through index arithmetic."""
    flip = torch.rand(len(images), generator=rng) < 0.5
    dy, dx = torch.randint(-1, 2, (2,), generator=rng)
    row = (torch.arange(S) - dy) % S
    column = ((torch.arange(S) - dx) % S).expand(len(images), S)
    column = torch.where(flip[:, None], S - 1 - column, column)
    return images[torch.arange(len(images))[:, None, None], row[None, :, None], column[:, None, :]]


def heavy_view(images, rng):
    view = gather_view(images, rng)
    gain = 0.6 + 0.8 * torch.rand(len(images), 1, 1, 1, generator=rng)
    corner = torch.stack([torch.randint(0, S - 3, (2,), generator=rng) for _ in images])
    inside = (torch.arange(S) >= corner[..., None]) & (torch.arange(S) < corner[..., None] + 4)
    hole = inside[:, 0, :, None] & inside[:, 1, None, :]
    return (view * gain).masked_fill(hole[..., None], 0)


class HookedSGD:
    """Each parameter is updated as soon as its gradient has been accumulated."""

    def __init__(self, params, lr, momentum, decay):
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.velocity = {}
        for p in params:
            p.register_post_accumulate_grad_hook(self.update)

    @torch.no_grad()
    def update(self, p):
        grad = p.grad.add(p, alpha=self.decay)
        v = self.velocity[p] = self.velocity[p] * self.momentum + grad if p in self.velocity else grad
        p.sub_(grad + self.momentum * v, alpha=self.lr)
        p.grad = None


net = Classifier()
net.take(torch.load(sys.argv[1]))
average = torch.cat([p.detach().flatten() for p in net.parameters()])


def teacher_forward(x):
    parts = average.split([p.numel() for p in net.parameters()])
    named = {name: part.view_as(p) for (name, p), part in zip(net.named_parameters(), parts)}
    return torch.func.functional_call(net, named, (x,))


rng = torch.Generator().manual_seed(7)
centre = torch.randn(K, 2, S, S, generator=rng)
label = torch.randint(0, K, (60,), generator=rng)
image = (centre[label] + 0.7 * torch.randn(60, 2, S, S, generator=rng)).movedim(1, -1).contiguous()

HookedSGD(net.parameters(), lr=0.08, momentum=0.9, decay=5e-4)
losses, kept = [], []
for step in range(1, STEPS + 1):
    some = torch.randint(0, 20, (NL,), generator=rng)
    more = torch.randint(0, 40, (NU,), generator=rng) + 20
    seen, easy = gather_view(image[some], rng), gather_view(image[more], rng)
    hard = heavy_view(image[more], rng)
    with torch.no_grad():
        belief = torch.softmax(teacher_forward(easy), 1)
    sure = belief.amax(1) >= 0.45
    kept.append(sure.float().mean().item())
    out_easy, out_hard, out_seen = net(torch.cat([easy, hard, seen])).split([NU, NU, NL])
    logp_hard = out_hard[sure].log_softmax(1)                    # only the confident rows
    parts = [-out_seen.log_softmax(1)[torch.arange(NL), label[some]].sum() / NL,
             -logp_hard[torch.arange(len(logp_hard)), belief[sure].argmax(1)].sum() / NU,
             (torch.softmax(out_easy, 1) - belief).square().sum() / (NU * K)]
    weight = 2 * math.exp(-5 * (1 - min(1, (step + 1) / STEPS)) ** 2)
    loss = parts[0] + parts[1] + weight * parts[2]
    losses.append(loss.item())
    loss.backward()
    now = torch.cat([p.detach().flatten() for p in net.parameters()])
    average.lerp_(now, max(1 / step, 0.1))

print(losses)
