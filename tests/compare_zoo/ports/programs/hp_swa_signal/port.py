# SPDX-License-Identifier: Apache-2.0
"""Signals with time before channels; the weights' mean as a running sum, statistics gathered as plain means."""
import sys
from dataclasses import dataclass, field

import torch

torch.set_num_threads(1)


@dataclass
class BatchStats:
    mean: torch.Tensor
    var: torch.Tensor
    mode: str = "ema"          # "ema": train; "fixed": use what is held; "gather": collect means
    seen: list = field(default_factory=list)

    def __call__(self, x, gain, bias):
        if self.mode != "fixed":
            rows = x.flatten(0, -2)
            var, mean = torch.var_mean(rows, 0, correction=0)
            unbiased = var.detach() * (len(rows) / (len(rows) - 1))
            if self.mode == "ema":
                self.mean, self.var = torch.lerp(self.mean, mean.detach(), 0.1), torch.lerp(self.var, unbiased, 0.1)
            else:
                self.seen.append((mean.detach(), unbiased))
        else:
            mean, var = self.mean, self.var
        return (x - mean) / torch.sqrt(var + 1e-5) * gain + bias

    def settle(self):
        self.mean, self.var = (torch.stack(s).mean(0) for s in zip(*self.seen))
        self.mode = "fixed"


class Net:
    names = {"bn1": "features.1", "bn2": "features.5", "bn3": "classifier.2"}

    def __init__(self, sd):
        k2 = sd["features.4.weight"]
        self.w = {"k1": sd["features.0.weight"].permute(2, 1, 0).flatten(0, 1),            # (5*2, out)
                  "k2a": k2[:10].permute(2, 1, 0).flatten(0, 1), "k2b": k2[10:].permute(2, 1, 0).flatten(0, 1),
                  "d1": sd["classifier.1.weight"].t(), "d2": sd["classifier.4.weight"].t(),
                  "b": sd["classifier.4.bias"]}
        for ours, theirs in self.names.items():
            self.w[ours + "g"], self.w[ours + "b"] = sd[theirs + ".weight"], sd[theirs + ".bias"]
        self.w = {k: v.clone().contiguous().requires_grad_() for k, v in self.w.items()}
        self.fresh()

    def fresh(self, mode="ema"):
        self.stats = {k: BatchStats(torch.zeros_like(self.w[k + "g"]), torch.ones_like(self.w[k + "g"]), mode)
                      for k in self.names}

    def norm(self, w, k, x):
        return torch.relu(self.stats[k](x, w[k + "g"], w[k + "b"]))

    @staticmethod
    def conv(x, kernel, reach):
        padded = torch.nn.functional.pad(x, (0, 0, reach, reach))
        windows = padded.unfold(1, 2 * reach + 1, 1)                   # n, t, c, k
        return windows.transpose(2, 3).flatten(2) @ kernel

    def __call__(self, x, w=None):
        w = w or self.w
        x = self.norm(w, "bn1", self.conv(x, w["k1"], 2))
        x = torch.maximum(x[:, ::2], x[:, 1::2])
        left, right = x.chunk(2, -1)
        x = torch.cat([self.conv(left, w["k2a"], 1), self.conv(right, w["k2b"], 1)], -1)
        x = self.norm(w, "bn2", x).mean(1)
        return self.norm(w, "bn3", x @ w["d1"]) @ w["d2"] + w["b"]

    def score(self, x, y, w=None):
        return -self(x, w).log_softmax(-1).gather(1, y[:, None]).mean()


def make_signals():
    gen = torch.Generator().manual_seed(62)
    y = torch.randint(0, 4, (64,), generator=gen)
    phase = (y[:, None] + 1) * torch.linspace(0, 6.2832, 32)
    noise = torch.randn(64, 2, 32, generator=gen).mT
    return torch.stack([phase.sin(), phase.cos()], -1) + 0.7 * noise, y


net = Net(torch.load(sys.argv[1]))
x, y = make_signals()
batches = [(x[i:i + 16], y[i:i + 16]) for i in (0, 16, 32)]
momentum = {k: None for k in net.w}
total, count, losses, seen_lr = None, 0, [], []
for step in range(6):
    lr = 0.1 if step < 3 else 0.04
    bx, by = batches[step % 3]
    loss = net.score(bx, by)
    grads = dict(zip(net.w, torch.autograd.grad(loss, list(net.w.values()))))
    with torch.no_grad():
        for k, p in net.w.items():
            g = grads[k] + 5e-4 * p
            momentum[k] = g.clone() if momentum[k] is None else 0.9 * momentum[k] + g
            p -= lr * (g + 0.9 * momentum[k])
        if step >= 3:
            total = {k: p.clone() + (total[k] if total else 0) for k, p in net.w.items()}
            count += 1
    losses.append(loss.item())
    seen_lr.append(lr)

with torch.no_grad():
    for s in net.stats.values():
        s.mode = "fixed"
    losses.append(net.score(x[48:], y[48:]).item())
    mean = {k: t / count for k, t in total.items()}
    net.fresh("gather")
    for bx, _ in batches:
        net(bx, mean)
    for s in net.stats.values():
        s.settle()
    losses.append(net.score(x[48:], y[48:], mean).item())
print(losses)
