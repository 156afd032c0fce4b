# SPDX-License-Identifier: Apache-2.0
"""The same model without a recurrence: the scan becomes a weighted sum over the past whose weights
come from cumulated steps; projections are apart, the convolution is shifted sums, AdamW by hand.
"""

import sys

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, DEPTH, INNER, STATES, RANK, TAPS = 29, 16, 2, 32, 4, 2, 4


def weights(*shape):
    return nn.Parameter(torch.zeros(*shape))


def root_mean_square_norm(x, gain):
    power = torch.einsum("bld,bld->bl", x, x) / x.shape[-1]
    return gain * x / torch.sqrt(power + 1e-5)[..., None]


def swish(x):
    return x * torch.sigmoid(x)


def causal_filter(x, kernel, bias):
    length = x.shape[1]
    total = bias.expand_as(x)
    for lag in range(TAPS):
        late = torch.cat([torch.zeros_like(x[:, :lag]), x[:, : length - lag]], dim=1)
        total = total + late * kernel[TAPS - 1 - lag]  # <- taps
    return total


class SelectiveSSM(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = weights(WIDTH)
        self.to_signal, self.to_gate = weights(WIDTH, INNER), weights(WIDTH, INNER)
        self.kernel, self.kernel_bias = weights(TAPS, INNER), weights(INNER)
        self.to_rank = weights(INNER, RANK)
        self.to_write, self.to_read = weights(INNER, STATES), weights(INNER, STATES)
        self.rank_to_step, self.step_bias = weights(RANK, INNER), weights(INNER)
        self.log_rates, self.through = weights(INNER, STATES), weights(INNER)
        self.back = weights(INNER, WIDTH)

    def forward(self, stream):
        x = root_mean_square_norm(stream, self.gain)
        signal, gate = x @ self.to_signal, x @ self.to_gate  # <- halves
        signal = swish(causal_filter(signal, self.kernel, self.kernel_bias))
        raw = signal @ self.to_rank @ self.rank_to_step + self.step_bias  # <- delta
        step = torch.logaddexp(raw, torch.zeros_like(raw))  # <- delta
        mixed = self.past(signal, step)
        mixed = mixed + self.through * signal
        gated = mixed * swish(gate)  # <- gate halves
        return stream + gated @ self.back  # <- residual

    def past(self, signal, step):
        length = signal.shape[1]
        elapsed = step.cumsum(dim=1)  # <- inclusive
        between = elapsed[:, :, None] - elapsed[:, None]  # <- inclusive
        fade = torch.exp(-between[..., None] * torch.exp(self.log_rates))  # <- inclusive
        seen = torch.ones(length, length).tril().bool()
        fade = fade.masked_fill(~seen[:, :, None, None], 0.0)
        written = torch.einsum("bsd,bsn->bsdn", signal * step, signal @ self.to_write)
        state = torch.einsum("btsdn,bsdn->btdn", fade, written)  # <- inclusive
        return torch.einsum("btdn,btn->btd", state, signal @ self.to_read)


class StateSpaceLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.gain = weights(WORDS, WIDTH), weights(WIDTH)
        self.blocks = nn.ModuleList(SelectiveSSM() for _ in range(DEPTH))

    def forward(self, ids):
        h = self.table[ids]
        for block in self.blocks:
            h = block(h)
        return root_mean_square_norm(h, self.gain) @ self.table.T


def converted(old):
    new = {"table": old["embedding.weight"], "gain": old["norm_f.weight"]}
    for i in range(DEPTH):
        here, there = f"blocks.{i}.", f"layers.{i}.mixer."
        signal, gate = old[there + "in_proj.weight"].T.split(INNER, dim=1)  # <- halves
        rank, write, read = old[there + "x_proj.weight"].T.split((RANK, STATES, STATES), dim=1)
        new |= {
            here + "gain": old[f"layers.{i}.norm.weight"],
            here + "to_signal": signal,
            here + "to_gate": gate,
            here + "kernel": old[there + "conv1d.weight"][:, 0].T,
            here + "kernel_bias": old[there + "conv1d.bias"],
            here + "to_rank": rank,
            here + "to_write": write,
            here + "to_read": read,
            here + "rank_to_step": old[there + "dt_proj.weight"].T,
            here + "step_bias": old[there + "dt_proj.bias"],
            here + "log_rates": old[there + "A_log"],
            here + "through": old[there + "D"],
            here + "back": old[there + "out_proj.weight"].T,
        }
    return new


def is_decayed(name):
    return name.endswith(("table", "kernel", "back")) or ".to_" in name or "rank_to" in name


class AdamW:
    def __init__(self, net, rate, beta1=0.9, beta2=0.95, decay=0.1):
        self.net, self.rate, self.betas, self.decay = net, rate, (beta1, beta2), decay
        self.first = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
        self.second = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        one, two = self.betas
        for name, p in self.net.named_parameters():
            m, v = self.first[name], self.second[name]
            if is_decayed(name):
                p.mul_(1 - self.rate * self.decay)  # <- decoupled
            m += (1 - one) * (p.grad - m)
            v += (1 - two) * (p.grad**2 - v)
            change = m / (1 - one**self.count) / ((v / (1 - two**self.count)).sqrt() + 1e-8)
            p.sub_(self.rate * change)
            p.grad = None


net = StateSpaceLM()
net.load_state_dict(converted(torch.load(sys.argv[1])))
optimizer = AdamW(net, rate=4e-3)
generator = np.random.default_rng(12)
losses = []
for _ in range(3):
    ids = torch.tensor(generator.integers(0, WORDS, (4, 13)))
    scores = net(ids[:, :-1])
    picked = torch.gather(scores, 2, ids[:, 1:, None])[..., 0]  # <- following
    loss = (torch.logsumexp(scores, dim=2) - picked).mean()  # <- following
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
