# SPDX-License-Identifier: Apache-2.0
"""The same Mamba-2 as a recurrence, a token at a time with a state a head, the projection in parts
of their own and the convolution over a buffer of the last inputs.
"""

import sys

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, WIDE, HEADS, STATE, GROUPS, TAPS = 31, 12, 24, 4, 5, 2, 4
HEAD, SHARED = WIDE // HEADS, GROUPS * STATE


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return nn.functional.rms_norm(x, x.shape[-1:], self.gain, 1e-5)


class Selective(nn.Module):
    """x, b and c after the projection: the last few tokens weighed, channel by channel."""

    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(WIDTH, width, bias=False)
        self.taps, self.bias = (
            nn.Parameter(torch.zeros(TAPS, width)),
            nn.Parameter(torch.zeros(width)),
        )

    def begin(self, batch):
        return torch.zeros(batch, TAPS, self.bias.shape[0])

    def forward(self, token, past):
        past = torch.cat([past[:, 1:], self.project(token)[:, None]], dim=1)  # <- causal
        y = (past * self.taps).sum(1) + self.bias  # <- causal
        return nn.functional.silu(y), past  # <- activated


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, WIDE, bias=False)
        self.x, self.b, self.c = Selective(WIDE), Selective(SHARED), Selective(SHARED)
        self.dt = nn.Linear(WIDTH, HEADS)
        self.log_rate, self.skip = (nn.Parameter(torch.zeros(HEADS)) for _ in range(2))
        self.norm = Norm(WIDE)
        self.out = nn.Linear(WIDE, WIDTH, bias=False)

    def forward(self, sequence):
        batch = sequence.shape[0]
        state = torch.zeros(batch, HEADS, HEAD, STATE)
        past_x, past_b, past_c = (part.begin(batch) for part in (self.x, self.b, self.c))
        group = torch.arange(HEADS) // (HEADS // GROUPS)  # <- groups
        read = []
        for token in sequence.unbind(1):
            x, past_x = self.x(token, past_x)  # <- activated
            b, past_b = self.b(token, past_b)  # <- activated
            c, past_c = self.c(token, past_c)  # <- activated
            x = x.view(batch, HEADS, HEAD)
            b = b.view(batch, GROUPS, STATE)[:, group]  # <- groups
            c = c.view(batch, GROUPS, STATE)[:, group]  # <- groups
            dt = nn.functional.softplus(self.dt(token))
            keep = torch.exp(-dt * self.log_rate.exp())
            fresh = (dt[..., None] * x)[..., None] * b[:, :, None]  # <- step
            state = keep[..., None, None] * state + fresh  # <- decay
            y = torch.einsum("bhpn,bhn->bhp", state, c)
            y = y + self.skip[:, None] * x  # <- skip
            read.append(y.flatten(1))
        y = torch.stack(read, 1)
        z = self.gate(sequence)
        y = self.norm(y * (z * z.sigmoid()))  # <- gate
        return self.out(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.zeros(WORDS, WIDTH))
        self.norms = nn.ModuleList([Norm(WIDTH), Norm(WIDTH)])
        self.mixers = nn.ModuleList([Mixer(), Mixer()])
        self.last = Norm(WIDTH)

    def forward(self, tokens):
        x = self.words[tokens]
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))  # <- residual
        return self.last(x) @ self.words.T  # <- tied


def translated(old):
    new = {"words": old["embedding.weight"], "last.gain": old["norm_f.weight"]}
    sizes = [WIDE, SHARED, SHARED]
    for n in range(2):
        get = {k[len(f"layers.{n}.") :]: w for k, w in old.items() if k.startswith(f"layers.{n}.")}
        at = f"mixers.{n}."
        gate, *three, dt = get["mixer.in_proj.weight"].split([WIDE, *sizes, HEADS])
        taps = get["mixer.conv1d.weight"].squeeze(1).T.split(sizes, dim=1)
        biases = get["mixer.conv1d.bias"].split(sizes)
        for name, weight, tap, bias in zip("xbc", three, taps, biases):
            new[f"{at}{name}.project.weight"] = weight
            new[f"{at}{name}.taps"], new[f"{at}{name}.bias"] = tap, bias
        new[f"norms.{n}.gain"] = get["norm.weight"]
        new[f"{at}gate.weight"] = gate
        new[f"{at}dt.weight"], new[f"{at}dt.bias"] = dt, get["mixer.dt_bias"]
        new[f"{at}log_rate"], new[f"{at}skip"] = get["mixer.A_log"], get["mixer.D"]
        new[f"{at}norm.gain"] = get["mixer.norm.weight"]
        new[f"{at}out.weight"] = get["mixer.out_proj.weight"]
    return new


net = Model()
net.load_state_dict(translated(torch.load(sys.argv[1])))
adamw = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.1, foreach=True)
rng = np.random.default_rng(127)
losses = []
for _ in range(3):
    text = torch.tensor(rng.integers(0, WORDS, (3, 13)))
    said = net(text[:, :-1]).log_softmax(-1)
    loss = -said.gather(-1, text[:, 1:, None]).mean()
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
