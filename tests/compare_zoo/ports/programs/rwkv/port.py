# SPDX-License-Identifier: Apache-2.0
"""The same RWKV in parallel form: the recurrence is a softmax over the past per channel with biases
by distance, the projections are stacked and multiplied at once, norms and Adam are written out.
"""

import sys

import numpy as np
import torch
from torch import nn

TOKENS, SIZE, BLOCKS = 31, 16, 2


def parameter(*shape):
    return nn.Parameter(torch.empty(*shape).fill_(0.0))


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.offset = parameter(SIZE), parameter(SIZE)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)  # <- first
        deviation = torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        return self.scale * (centred / deviation) + self.offset


def previous(x):
    before = torch.roll(x, 1, dims=1)
    before[:, 0] = 0.0  # <- shift
    return before  # <- shift


def blend(x, ratios):
    """One mixture of each token with the one before it for every row of ratios."""
    x, before = x[None], previous(x)[None]
    ratios = ratios[:, None, None]
    return before + ratios * (x - before)  # <- mix shift


class TimeMixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.ratios, self.kvr = parameter(3, SIZE), parameter(3, SIZE, SIZE)
        self.decay, self.bonus = parameter(SIZE), parameter(SIZE)
        self.out = parameter(SIZE, SIZE)

    def forward(self, x):
        k, v, r = torch.einsum("jbti,jio->jbto", blend(x, self.ratios), self.kvr)  # <- order
        scores = self.distances(x.shape[1]) + k[:, None]  # <- bonus distance
        attention = torch.softmax(scores, dim=2)  # <- bonus distance
        mixed = torch.einsum("btsc,bsc->btc", attention, v)
        return (torch.sigmoid(r) * mixed) @ self.out

    def distances(self, length):
        now = torch.arange(length)
        apart = (now[:, None] - now[None, :])[..., None]
        past = (apart - 1) * -torch.exp(self.decay)  # <- distance
        past = past.masked_fill(apart < 0, float("-inf"))
        return torch.where(apart == 0, self.bonus, past)  # <- bonus


class ChannelMixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.ratios = parameter(2, SIZE)
        self.up, self.gate, self.down = (
            parameter(SIZE, 4 * SIZE),
            parameter(SIZE, SIZE),
            parameter(4 * SIZE, SIZE),
        )

    def forward(self, x):
        for_key, for_gate = blend(x, self.ratios)
        hidden = (for_key @ self.up).clamp(min=0) ** 2  # <- square
        return (hidden @ self.down) * torch.sigmoid(for_gate @ self.gate)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_time, self.before_channel = Norm(), Norm()
        self.time, self.channel = TimeMixing(), ChannelMixing()

    def forward(self, x):
        x = x + self.time(self.before_time(x))  # <- first
        return x + self.channel(self.before_channel(x))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.scores = parameter(TOKENS, SIZE), parameter(SIZE, TOKENS)
        self.first, self.last = Norm(), Norm()
        self.layers = nn.Sequential(*(Layer() for _ in range(BLOCKS)))

    def forward(self, tokens):
        x = self.table[tokens]
        x = self.layers(self.first(x))  # <- first
        return self.last(x) @ self.scores


def imported(old):
    new = {"table": old["emb.weight"], "scores": old["head.weight"].T}

    def norm(mine, theirs):
        new[mine + ".scale"], new[mine + ".offset"] = old[theirs + ".weight"], old[theirs + ".bias"]

    norm("first", "blocks.0.ln0")
    norm("last", "ln_out")
    for i in range(BLOCKS):
        mine, theirs = f"layers.{i}.", f"blocks.{i}."
        norm(mine + "before_time", theirs + "ln1")
        norm(mine + "before_channel", theirs + "ln2")
        att, ffn = theirs + "att.", theirs + "ffn."
        new[mine + "time.ratios"] = torch.cat([old[f"{att}time_mix_{n}"][0] for n in "kvr"])
        key, value, receptance = (
            old[f"{att}{kind}.weight"].T for kind in ("key", "value", "receptance")
        )
        new[mine + "time.kvr"] = torch.stack([key, value, receptance])  # <- order
        new[mine + "time.decay"] = old[att + "time_decay"]
        new[mine + "time.bonus"] = old[att + "time_first"]
        new[mine + "time.out"] = old[att + "output.weight"].T
        new[mine + "channel.ratios"] = torch.cat([old[f"{ffn}time_mix_{n}"][0] for n in "kr"])
        new[mine + "channel.up"] = old[ffn + "key.weight"].T
        new[mine + "channel.gate"] = old[ffn + "receptance.weight"].T
        new[mine + "channel.down"] = old[ffn + "value.weight"].T
    return new


def rate_of(name, base=0.01):
    if name.endswith("decay"):
        return 2 * base
    if name.endswith("bonus"):
        return 3 * base
    return base


def adam(named, memory, step, slow=0.99):
    with torch.no_grad():
        for name, p in named:
            if p.grad is None:
                continue
            mean, square = memory.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
            mean.mul_(0.9).add_(0.1 * p.grad)
            square.mul_(slow).add_((1 - slow) * p.grad**2)
            root = torch.sqrt(square / (1 - slow**step)) + 1e-8  # <- correction
            p.add_(mean / (1 - 0.9**step) / root, alpha=-rate_of(name))  # <- correction
            p.grad = None


tokens = torch.as_tensor(np.random.default_rng(21).integers(0, TOKENS, (3, 4, 11)))
net = LanguageModel()
net.load_state_dict(imported(torch.load(sys.argv[1])))
memory = {}
losses = []
for step in range(1, 4):
    seen, following = tokens[step - 1, :, :-1], tokens[step - 1, :, 1:]
    likely = torch.log_softmax(net(seen), dim=-1)
    right = nn.functional.one_hot(following, TOKENS)
    loss = -(likely * right).sum() / following.numel()
    loss.backward()
    adam(list(net.named_parameters()), memory, step)
    losses.append(loss.item())
