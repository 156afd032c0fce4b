# SPDX-License-Identifier: Apache-2.0
"""The recogniser with everything by hand that a small device does not have: frames and their
spectrum, gated units one step at a time and the forward algorithm of CTC.
"""

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SIZE, STEP, BANDS, SYMBOLS = 128, 64, 12, 7
NEVER = -1e30


@dataclass
class Gru:
    w_in: Tensor
    w_state: Tensor
    b_in: Tensor
    b_state: Tensor

    def scan(self, x: Tensor, lengths: Tensor, backwards: bool) -> Tensor:
        """States of every step; where a sequence is over, its state stays as it is."""
        state = x.new_zeros(x.shape[0], self.w_state.shape[1])
        inputs = x @ self.w_in.T + self.b_in
        order = range(x.shape[1])
        states: list = [None] * x.shape[1]
        for t in reversed(order) if backwards else order:
            r_in, z_in, n_in = inputs[:, t].chunk(3, 1)
            r_h, z_h, n_h = (state @ self.w_state.T + self.b_state).chunk(3, 1)
            r, z = torch.sigmoid(r_in + r_h), torch.sigmoid(z_in + z_h)
            n = torch.tanh(n_in + r * n_h)  # <- reset
            new = n + z * (state - n)  # <- reset
            state = torch.where((t < lengths)[:, None], new, state)
            states[t] = state
        return torch.stack(states, 1)


def filters() -> Tensor:
    mel = np.linspace(2595 * np.log10(1 + 20 / 700), 2595 * np.log10(1 + 4000 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.linspace(0, 4000, SIZE // 2 + 1)
    columns = [np.interp(hertz, edges[i : i + 3], [0, 1, 0]) for i in range(BANDS)]
    return torch.tensor(np.stack(columns, 1), dtype=torch.float32)


def spectrum(sound: Tensor) -> Tensor:
    """Power of overlapping frames, the first centred at the first sample."""
    half = SIZE // 2
    before, after = sound[:, 1 : half + 1].flip(1), sound[:, -half - 1 : -1].flip(1)  # <- edges
    frames = torch.cat([before, sound, after], 1).unfold(1, SIZE, STEP)  # <- edges
    n = torch.arange(SIZE, dtype=torch.double)
    bell = 0.5 - 0.5 * torch.cos(2 * np.pi * n / SIZE)  # <- window
    angle = 2 * np.pi * torch.outer(n, n[: half + 1]) / SIZE
    windowed = frames * bell.float()  # <- window edges
    return (windowed @ angle.cos().float()) ** 2 + (windowed @ angle.sin().float()) ** 2  # <- edges


def features(sound: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    logs = (spectrum(sound) @ filters() + 1e-6).log()  # <- floor
    frames = lengths // STEP + 1
    out = torch.zeros_like(logs)
    for row, (values, n) in enumerate(zip(logs, frames.tolist())):
        std, mean = torch.std_mean(values[:n], dim=0)  # <- padded
        out[row, :n] = (values[:n] - mean) / (std + 1e-5)  # <- padded
    return out, frames


def shifted(x: Tensor, taps: Tensor, stride: int) -> Tensor:
    """Windows of a sequence (b, t, c) around every stride-th step: (b, t', c, taps)."""
    side = taps.shape[-1] // 2
    padded = torch.nn.functional.pad(x, (0, 0, side, side))
    return padded.unfold(1, taps.shape[-1], stride)


def encode(p: dict[str, Tensor], sound: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    x, frames = features(sound, lengths)
    w = p["conv.weight"]
    x = torch.einsum("btck,ock->bto", shifted(x, w, 2), w) + p["conv.bias"]
    x = x * x.sigmoid()
    w = p["depthwise.weight"]
    y = (shifted(x, w, 1) * w[:, 0]).sum(-1) + p["depthwise.bias"]
    y = y * y.sigmoid()
    x = x + y @ p["pointwise.weight"][..., 0].T + p["pointwise.bias"]
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    x = x * p["norm.weight"] + p["norm.bias"]
    steps = (frames + 1) // 2
    both = []
    for suffix in ("", "_reverse"):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        gru = Gru(*(p[f"rnn.{name}_l0{suffix}"] for name in names))
        both.append(gru.scan(x, steps, backwards=bool(suffix)))
    logits = torch.cat(both, -1) @ p["out.weight"].T + p["out.bias"]
    return logits - logits.logsumexp(-1, keepdim=True), steps


def ctc(scores: Tensor, text: list[int]) -> Tensor:
    """Minus the log of the probability of all the ways to spell the text in (t, symbols)."""
    path = [0]
    for symbol in text:
        path += [symbol, 0]
    path = torch.tensor(path)
    skips = torch.zeros(len(path), dtype=torch.bool)
    skips[2:] = (path[2:] != 0) & (path[2:] != path[:-2])  # <- repeats
    never = torch.full((2,), NEVER)
    alpha = torch.where(torch.arange(len(path)) < 2, scores[0, path], NEVER)
    for row in scores[1:]:
        one = torch.cat([never[:1], alpha[:-1]])
        two = torch.cat([never, alpha[:-2]]).where(skips, torch.tensor(NEVER))  # <- repeats
        alpha = torch.stack([alpha, one, two]).logsumexp(0) + row[path]  # <- repeats
    return -alpha[-2:].logsumexp(0)


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, list[list[int]]]:
    t = torch.arange(2048) / 8000
    pitch = 200 + 1500 * torch.rand(3, 4, 1, generator=generator)
    sound = torch.sin(2 * torch.pi * pitch * t).mean(1)
    sound = sound + 0.05 * torch.randn(3, 2048, generator=generator)
    lengths = torch.tensor([2048, 1600, 1230])
    sound[torch.arange(2048) >= lengths[:, None]] = 0
    texts = torch.randint(1, SYMBOLS, (3, 5), generator=generator)
    texts[:, 2] = texts[:, 1]
    return sound, lengths, [row[:n].tolist() for row, n in zip(texts, (5, 4, 3))]


weights = torch.load(sys.argv[1])["state_dict"]
weights = {name: value.clone().requires_grad_() for name, value in weights.items()}
velocity = {name: torch.zeros_like(value) for name, value in weights.items()}
generator = torch.Generator().manual_seed(9)
losses = []
for _ in range(3):
    sound, lengths, texts = batch(generator)
    scores, steps = encode(weights, sound, lengths)
    each = [
        ctc(s[:n], text) / len(text) for s, n, text in zip(scores, steps, texts)
    ]  # <- per_length
    loss = torch.stack(each).mean()  # <- per_length
    losses.append(loss.item())
    gradients = torch.autograd.grad(loss, list(weights.values()))
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()  # <- clip
    scale = (1.5 / (norm + 1e-6)).clamp(max=1)  # <- clip
    with torch.no_grad():
        for (name, value), gradient in zip(weights.items(), gradients):
            change = gradient * scale  # <- clip
            velocity[name].mul_(0.9).add_(change)
            value.sub_(0.05 * (change + 0.9 * velocity[name]))
