# SPDX-License-Identifier: Apache-2.0
"""The same S4D as a recurrence over time, channels last: real and imaginary parts apart, plain
tensors in a dictionary, norms and AdamW written out.
"""

import sys

import numpy as np
import torch

CHANNELS, MODES, BLOCKS, CLASSES = 8, 4, 2, 5
SLOW = {"log_step", "log_decay", "frequency"}


def discretise(p):
    """Transition and output weights of a zero-order hold, as pairs of real tensors."""
    step = p["log_step"].exp()[:, None]
    decay, frequency = p["log_decay"].exp(), p["frequency"]
    size = torch.exp(-decay * step)
    a_re, a_im = size * torch.cos(frequency * step), size * torch.sin(frequency * step)
    # (a - 1) / lambda, with lambda = -decay + i frequency
    square = decay * decay + frequency * frequency  # <- hold
    b_re = ((a_re - 1) * -decay + a_im * frequency) / square  # <- hold
    b_im = (a_im * -decay - (a_re - 1) * frequency) / square  # <- hold
    c_re, c_im = p["c"].unbind(-1)
    return (a_re, a_im), (c_re * b_re - c_im * b_im, c_re * b_im + c_im * b_re)  # <- hold


def scan(p, u):
    """(batch, time, channels) -> the same, a state of MODES complex numbers a channel."""
    (a_re, a_im), (w_re, w_im) = discretise(p)
    re = im = u.new_zeros(u.shape[0], CHANNELS, MODES)
    ys = []
    for now in u.unbind(1):
        re, im = re * a_re - im * a_im + now[..., None], re * a_im + im * a_re  # <- before
        y = 2.0 * (re * w_re - im * w_im).sum(-1)  # <- conjugates hold before
        ys.append(y + p["skip"] * now)  # <- skip
    return torch.stack(ys, dim=1)


def block(p, x):
    y = scan(p, x)
    y = 0.5 * y * (1.0 + torch.erf(y * 0.5**0.5))  # <- activation
    mixed = y @ p["mix"] + p["mix_bias"]
    value, gate = mixed.chunk(2, dim=-1)  # <- halves
    x = x + value * torch.sigmoid(gate)  # <- halves residual
    centred = x - x.mean(-1, keepdim=True)
    spread = centred.square().mean(-1, keepdim=True)
    return centred / torch.sqrt(spread + 1e-5) * p["gain"] + p["shift"]


def classify(net, x):
    h = x @ net["in"]["w"] + net["in"]["b"]
    for n in range(BLOCKS):
        h = block(net[f"block{n}"], h)
    return h.mean(1) @ net["out"]["w"] + net["out"]["b"]


def import_weights(old):
    net = {
        "in": {"w": old["encoder.weight"].T, "b": old["encoder.bias"]},
        "out": {"w": old["decoder.weight"].T, "b": old["decoder.bias"]},
    }
    for n in range(BLOCKS):
        s4, norm = f"s4_layers.{n}.", f"norms.{n}."
        net[f"block{n}"] = {
            "log_step": old[s4 + "kernel.log_dt"],
            "log_decay": old[s4 + "kernel.log_A_real"],
            "frequency": old[s4 + "kernel.A_imag"],
            "c": old[s4 + "kernel.C"],
            "skip": old[s4 + "D"],
            "mix": old[s4 + "output_linear.0.weight"][:, :, 0].T,
            "mix_bias": old[s4 + "output_linear.0.bias"],
            "gain": old[norm + "weight"],
            "shift": old[norm + "bias"],
        }
    return {
        part: {name: w.detach().clone().requires_grad_() for name, w in tensors.items()}
        for part, tensors in net.items()
    }


class AdamW:
    def __init__(self, net):
        self.entries = [(n, w) for tensors in net.values() for n, w in tensors.items()]
        self.first = [torch.zeros_like(w) for _, w in self.entries]
        self.second = [torch.zeros_like(w) for _, w in self.entries]
        self.count = 0

    @torch.no_grad()
    def update(self):
        self.count += 1
        for (name, w), m, v in zip(self.entries, self.first, self.second):
            rate, decay = (0.005, 0.0) if name in SLOW else (0.02, 0.05)  # <- slower
            m.lerp_(w.grad, 0.1)
            v.lerp_(w.grad * w.grad, 0.001)
            w.mul_(1 - rate * decay)  # <- slower
            root = torch.sqrt(v / (1 - 0.999**self.count)) + 1e-8
            w.sub_(rate * (m / (1 - 0.9**self.count)) / root)  # <- slower
            w.grad = None


net = import_weights(torch.load(sys.argv[1]))
adamw = AdamW(net)
rng = np.random.default_rng(41)
losses = []
for _ in range(3):
    walk = np.cumsum(rng.standard_normal((6, 20, 3), dtype=np.float32), axis=1)
    labels = torch.tensor(rng.integers(0, CLASSES, 6))
    scores = classify(net, torch.tensor(walk))
    likelihood = scores.log_softmax(-1)[torch.arange(6), labels]
    loss = -likelihood.mean()
    loss.backward()
    adamw.update()
    losses.append(loss.item())
