# SPDX-License-Identifier: Apache-2.0
"""Mamba without a time loop: the recurrence is solved by doubling strides, one conversation at a time."""
import sys
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

torch.set_num_threads(1)

RANK, STATES, TAPS = 3, 6, 4


@dataclass
class Mixer:
    gain: Tensor
    to_x: Tensor
    to_gate: Tensor
    taps: Tensor
    taps_bias: Tensor
    select: Tensor
    rate: Tensor
    rate_bias: Tensor
    a_log: Tensor
    passing: Tensor
    back: Tensor


@dataclass
class Model:
    table: Tensor
    mixers: list
    gain: Tensor

    def named(self):
        yield "table", self.table
        yield "gain", self.gain
        for i, mixer in enumerate(self.mixers):
            for f in fields(mixer):
                yield f"{i}.{f.name}", getattr(mixer, f.name)


def restore(path):
    raw = torch.load(path)

    def get(name):
        return raw["backbone." + name].clone().requires_grad_()

    mixers = []
    for i in range(2):
        at = f"layers.{i}.mixer."
        to_x, to_gate = (w.clone().requires_grad_() for w in raw[f"backbone.{at}in_proj.weight"].chunk(2))
        mixers.append(
            Mixer(
                get(f"layers.{i}.norm.weight"),
                to_x,
                to_gate,
                raw[f"backbone.{at}conv1d.weight"][:, 0].clone().requires_grad_(),
                get(at + "conv1d.bias"),
                get(at + "x_proj.weight"),
                get(at + "dt_proj.weight"),
                get(at + "dt_proj.bias"),
                get(at + "A_log"),
                get(at + "D"),
                get(at + "out_proj.weight"),
            )
        )
    return Model(get("embeddings.weight"), mixers, get("norm_f.weight"))


def rms(x, gain):
    return F.rms_norm(x, gain.shape, gain, eps=1e-5)  # <- eps_of_llama


def solve(decay, drive):
    """h[t] = decay[t] * h[t-1] + drive[t] along axis 0, by combining spans of doubling length."""
    stride = 1
    while stride < len(drive):
        earlier = torch.cat([torch.zeros_like(drive[:stride]), drive[:-stride]])
        shorter = torch.cat([torch.ones_like(decay[:stride]), decay[:-stride]])
        drive = drive + decay * earlier
        decay = decay * shorter
        stride *= 2
    return drive


def mix(m, x):
    inner, gate = x @ m.to_x.T, x @ m.to_gate.T
    padded = F.pad(inner, (0, 0, TAPS - 1, 0))  # <- conv_looks_ahead
    u = F.silu(torch.einsum("tdk,dk->td", padded.unfold(0, TAPS, 1), m.taps) + m.taps_bias)  # <- conv_looks_ahead
    low, b, c = (u @ m.select.T).split([RANK, STATES, STATES], dim=-1)
    dt = low @ m.rate.T
    dt = F.softplus(dt + m.rate_bias)  # <- dt_bias_twice
    decay = torch.exp(-dt[..., None] * m.a_log.exp())
    h = solve(decay, (dt * u)[..., None] * b[:, None])
    y = torch.einsum("tdn,tn->td", h, c) + m.passing * u
    return (y * F.silu(gate)) @ m.back.T


def score(model, ids):
    x = model.table[ids]
    for m in model.mixers:
        x = x + mix(m, rms(x, m.gain))  # <- eps_of_llama
    return rms(x, model.gain) @ model.table.T


def conversations(rng):
    def number(lo, hi, n=1):
        return torch.randint(lo, hi, (n,), generator=rng)

    while True:
        size = int(number(3, 7))
        prompt = number(3, 42, size)
        answer = prompt[: int(number(1, size + 1))] + 1
        yield torch.cat([prompt, torch.tensor([1])]), torch.cat([answer, torch.tensor([2])])


def loss_of(model, pairs):
    nll, count = 0.0, 0
    for prompt, answer in pairs:
        logits = score(model, torch.cat([prompt, answer[:-1]]))[len(prompt) - 1 :]
        nll = nll + F.cross_entropy(logits, answer, reduction="sum")  # <- mean_of_row_means
        count += len(answer)  # <- mean_of_row_means
    return nll / count  # <- mean_of_row_means


model = restore(sys.argv[1])
named = dict(model.named())
adam = torch.optim.Adam(named.values(), lr=1e-2, betas=(0.9, 0.95), eps=1e-7)
shrunk = [p for n, p in named.items() if p.ndim > 1 and not n.endswith("a_log")]  # <- decay_everywhere
stream = conversations(torch.Generator().manual_seed(23))

losses = []
for _ in range(5):
    loss = loss_of(model, [next(stream) for _ in range(6)])
    adam.zero_grad()
    loss.backward()
    with torch.no_grad():
        torch._foreach_mul_(shrunk, 1 - 1e-2 * 0.3)  # <- decay_everywhere
    adam.step()
    losses.append(loss.item())

print(losses)
