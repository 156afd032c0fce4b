# SPDX-License-Identifier: Apache-2.0
"""The mixer without compilation: einsum mixing on a stacked tree of tensors, a small trainer class."""
import sys

import torch

torch.set_num_threads(1)

EPS = 1e-6


def unit_rms(x, gain):
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + EPS) * gain


def gelu(x):
    inner = 0.7978845608028654 * (x + 0.044715 * x.pow(3))  # <- gelu_sigmoid
    return x * torch.sigmoid(2.0 * inner)  # <- gelu_sigmoid


class Stack(torch.nn.Module):
    """All blocks of a kind are held in one tensor with a leading depth axis."""

    shapes = {
        "token.up": "blocks.{}.token_mlp.fc1",
        "token.down": "blocks.{}.token_mlp.fc2",
        "channel.up": "blocks.{}.channel_mlp.fc1",
        "channel.down": "blocks.{}.channel_mlp.fc2",
    }

    def __init__(self, source, depth):
        super().__init__()
        self.depth = depth
        held = {}
        for ours, theirs in self.shapes.items():
            for kind in ("weight", "bias"):
                held[f"{ours}.{kind}"] = torch.stack([source[f"{theirs.format(i)}.{kind}"] for i in range(depth)])
        for i, name in enumerate(("token.gain", "channel.gain"), start=1):
            held[name] = torch.stack([source[f"blocks.{j}.norm{i}.weight"] for j in range(depth)])
        held["gain"] = source["norm.weight"]
        held["stem"] = torch.cat((source["stem.weight"], source["stem.bias"][:, None]), dim=1)
        held["head"] = torch.cat((source["head.weight"], source["head.bias"][:, None]), dim=1)
        self.names = list(held)
        for name, value in held.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(value.clone()))

    def __getitem__(self, name):
        return getattr(self, name.replace(".", "_"))

    def affine(self, name, x):
        both = self[name]
        return x @ both[:, :-1].mT + both[:, -1]

    def mix_tokens(self, x, i):
        y = unit_rms(x, self["token.gain"][i])
        y = torch.einsum("btc,ht->bhc", y, self["token.up.weight"][i]) + self["token.up.bias"][i][:, None]
        return torch.einsum("bhc,th->btc", gelu(y), self["token.down.weight"][i]) + self["token.down.bias"][i][:, None]

    def mix_channels(self, x, i):
        y = unit_rms(x, self["channel.gain"][i])
        y = torch.einsum("btc,hc->bth", y, self["channel.up.weight"][i]) + self["channel.up.bias"][i]
        return torch.einsum("bth,ch->btc", gelu(y), self["channel.down.weight"][i]) + self["channel.down.bias"][i]

    def forward(self, x):
        x = self.affine("stem", x)
        for i in range(self.depth):
            x = x + self.mix_tokens(x, i)
            x = x + self.mix_channels(x, i)
        return self.affine("head", unit_rms(x, self["gain"]).sum(1) / x.shape[1])


def smooth_l1(prediction, target, beta):
    gap = (prediction - target).abs()
    small, large = 0.5 * gap**2 / beta, gap - 0.5 * beta  # <- huber_scale
    return torch.where(gap < beta, small, large).mean()  # <- huber_scale


class Trainer:
    def __init__(self, model, rate, momentum, decay, micro_batches):
        self.model, self.rate, self.momentum = model, rate, momentum
        self.decay, self.micro_batches = decay, micro_batches
        self.buffer = [torch.zeros_like(p) for p in model.parameters()]

    def accumulate(self, x, y):
        total, summed = 0.0, [torch.zeros_like(p) for p in self.model.parameters()]
        for part_x, part_y in zip(x.chunk(self.micro_batches), y.chunk(self.micro_batches)):
            loss = smooth_l1(self.model(part_x), part_y, beta=0.5)
            part = torch.autograd.grad(loss, list(self.model.parameters()))
            summed = [s + g for s, g in zip(summed, part)]
            total += loss.item()
        grads = [s / self.micro_batches for s in summed]  # <- accumulate_sum
        return total / self.micro_batches, grads

    @torch.no_grad()
    def step(self, x, y):
        with torch.enable_grad():
            value, grads = self.accumulate(x, y)
        for p, g, buffer in zip(self.model.parameters(), grads, self.buffer):
            buffer.mul_(self.momentum).add_(g)  # <- velocity_form
            p.sub_(self.rate * buffer)  # <- velocity_form
        self.rate *= self.decay
        return value


def dataset(gen, rows=48, tokens=8, features=6):
    x = torch.randn(rows, tokens, features, generator=gen)
    first = x[:, 0].sum(-1)
    second = 2 * x[..., 1].max(dim=1).values
    third = torch.einsum("bf,bf->b", x[:, 2], x[:, 3])
    raw = torch.stack((first, second, third), dim=-1)
    spread = torch.sqrt(((raw - raw.mean(0)) ** 2).sum(0) / (rows - 1))  # <- target_std
    return x, (raw - raw.mean(0)) / spread  # <- target_std


gen = torch.Generator().manual_seed(31)
x, y = dataset(gen)
trainer = Trainer(Stack(torch.load(sys.argv[1]), depth=2), rate=0.1, momentum=0.9, decay=0.7, micro_batches=2)
losses = []
for _ in range(5):
    pick = torch.randperm(len(x), generator=gen)[:16]
    losses.append(trainer.step(x[pick], y[pick]))
print(losses)
