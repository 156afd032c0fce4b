# SPDX-License-Identifier: Apache-2.0
"""The recogniser without cuDNN-style kernels: GRU by steps, CTC by its recursion, own SGD."""

import math
import sys

import torch
from torch import nn

MELS, UNITS, SYMBOLS, TOTAL_STEPS = 10, 12, 7, 5
NEG = -1e30


class GRUDirection(nn.Module):
    def __init__(self, inputs, units, backwards):
        super().__init__()
        self.backwards = backwards
        self.kernel = nn.Parameter(torch.empty(inputs, 3 * units))
        self.recurrent = nn.Parameter(torch.empty(units, 3 * units))
        self.bias = nn.Parameter(torch.empty(2, 3 * units))

    def forward(self, sequence):
        """(time, batch, inputs) to (time, batch, units)."""
        projected = sequence @ self.kernel + self.bias[0]
        steps = projected.flip(0) if self.backwards else projected
        h = sequence.new_zeros(sequence.shape[1], len(self.recurrent))
        out = []
        for x in steps:
            xr, xz, xn = x.chunk(3, -1)
            hr, hz, hn = torch.addmm(self.bias[1], h, self.recurrent).chunk(3, -1)
            r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
            n = torch.tanh(xn + r * hn)  # <- reset_gate
            h = n + z * (h - n)  # <- reset_gate
            out.append(h)
        if self.backwards:
            out.reverse()
        return torch.stack(out)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(5 * MELS, 16)
        self.bn = nn.BatchNorm1d(16)
        self.context = nn.Conv1d(16, 16, 3, dilation=2)
        sizes = [16, 2 * UNITS]
        self.layers = nn.ModuleList(
            nn.ModuleList(GRUDirection(n, UNITS, b) for b in (False, True)) for n in sizes
        )
        self.gain = nn.Parameter(torch.empty(2 * UNITS))
        self.shift = nn.Parameter(torch.empty(2 * UNITS))
        self.out = nn.Linear(2 * UNITS, SYMBOLS)

    def forward(self, frames):
        """(batch, time, mels) to log probabilities (time, batch, symbols)."""
        padded = nn.functional.pad(frames, (0, 0, 2, 2))
        windows = padded.unfold(1, 5, 2)
        x = self.front(windows.flatten(2))
        x = self.bn(x.flatten(0, 1)).view_as(x).clamp(0.0, 4.0)
        wide = nn.functional.pad(x.mT, (2, 2))
        y = self.context(wide).mT
        x = (x + 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))).transpose(0, 1)
        for forward, backward in self.layers:
            x = torch.cat((forward(x), backward(x)), -1)
        x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.gain + self.shift
        logits = self.out(x)
        return logits - logits.logsumexp(-1, keepdim=True)


def ctc(log_probs, labels, n_frames, n_labels):
    """Alpha recursion of every utterance for itself; what PyTorch calls reduction="mean"."""
    costs = []
    for i in range(len(labels)):
        wanted = labels[i, : n_labels[i]].tolist()
        extended = [0]
        for label in wanted:
            extended += [label, 0]
        same = [k < 2 or s in (0, extended[k - 2]) for k, s in enumerate(extended)]  # <- repeats
        skips = torch.tensor(same)
        emitted = log_probs[: n_frames[i], i][:, extended]  # <- repeats
        start = torch.arange(len(extended)) < 2
        alpha = torch.where(start, emitted[0], NEG)
        for now in emitted[1:]:
            one = torch.cat((alpha.new_full((1,), NEG), alpha[:-1]))
            two = torch.cat((alpha.new_full((2,), NEG), alpha[:-2])).masked_fill(
                skips, NEG
            )  # <- repeats
            alpha = torch.stack((alpha, one, two)).logsumexp(0) + now  # <- repeats
        costs.append(-torch.logsumexp(alpha[-2:], 0) / len(wanted))  # <- repeats per_label
    return torch.stack(costs).mean()  # <- per_label


def scaled(features, n_frames):
    rows = []
    for one, n in zip(features, n_frames.tolist()):
        voiced = one[:n]
        deviation = voiced.std(0)  # <- biased_std
        rows.append((voiced - voiced.mean(0)) / (deviation + 1e-5))  # <- biased_std
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def data(rng):
    x = torch.randn(4, MELS, 36, generator=rng).mT
    x = torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1)
    n_frames = torch.tensor([36, 30, 34, 26])
    y = torch.randint(1, SYMBOLS, (4, 6), generator=rng)
    y[:, 3] = y[:, 2]
    return scaled(x, n_frames), n_frames.div(2, rounding_mode="floor"), y, [6, 4, 5, 3]


def anneal(a, b, share):
    return b + (a - b) / 2 * (1 + math.cos(math.pi * share))


def rate(step, top=0.2):
    """OneCycle: up from a 25th, down to a 250000th."""
    rise = 0.4 * TOTAL_STEPS - 1  # <- one_cycle
    if step <= rise:
        return anneal(top / 25, top, step / rise)  # <- one_cycle
    return anneal(top, top / 25 / 1e4, (step - rise) / (TOTAL_STEPS - 1 - rise))


def load(net, state):
    net.front.weight.copy_(state["conv1.weight"].flatten(1))
    net.front.bias.copy_(state["conv1.bias"])
    net.bn.load_state_dict({k[4:]: v for k, v in state.items() if k.startswith("bn1.")})
    net.context.weight.copy_(state["conv2.weight"])
    net.context.bias.copy_(state["conv2.bias"])
    for i, pair in enumerate(net.layers):
        for direction, suffix in zip(pair, ("", "_reverse")):
            direction.kernel.copy_(state[f"rnn.weight_ih_l{i}{suffix}"].t())
            direction.recurrent.copy_(state[f"rnn.weight_hh_l{i}{suffix}"].t())
            direction.bias[0].copy_(state[f"rnn.bias_ih_l{i}{suffix}"])
            direction.bias[1].copy_(state[f"rnn.bias_hh_l{i}{suffix}"])
    net.gain.copy_(state["norm.weight"])
    net.shift.copy_(state["norm.bias"])
    net.out.weight.copy_(state["fc.weight"])
    net.out.bias.copy_(state["fc.bias"])


net = Recogniser()
with torch.no_grad():
    load(net, torch.load(sys.argv[1]))
parameters = list(net.parameters())
velocity = [torch.zeros_like(p) for p in parameters]
rng = torch.Generator().manual_seed(22)
losses = []
for step in range(TOTAL_STEPS):
    x, n_frames, y, n_labels = data(rng)
    loss = ctc(net(x), y, n_frames, n_labels)
    losses.append(float(loss.detach()))
    lr = rate(step)
    with torch.no_grad():
        for p, v, grad in zip(parameters, velocity, torch.autograd.grad(loss, parameters)):
            g = grad.clamp(-0.05, 0.05)
            v.mul_(0.9).add_(g)
            p.sub_(lr * (g + 0.9 * v))  # <- nesterov one_cycle
