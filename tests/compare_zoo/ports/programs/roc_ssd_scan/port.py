# SPDX-License-Identifier: Apache-2.0
"""The state-space model in its dual form: a masked decay matrix in place of the recurrence."""
import re
import sys

import torch
from torch import nn

torch.set_num_threads(1)

V, E, H, P, S = 30, 20, 4, 8, 6
ROWS, LENGTH, UPDATES = 3, 20, 5


def rms(x, gain):
    return torch.nn.functional.rms_norm(x, gain.shape, gain, 1e-5)


class DualBlock(nn.Module):
    """Attention-like: scores C·B, weighted with the decay between two places, times dt·x."""

    def __init__(self):
        super().__init__()
        inner = H * P
        self.pre_gain = nn.Parameter(torch.empty(E))
        self.to_gate = nn.Parameter(torch.empty(E, inner))
        self.to_xbc = nn.Parameter(torch.empty(E, inner + 2 * S))
        self.to_dt = nn.Parameter(torch.empty(E, H))
        self.taps = nn.Parameter(torch.empty(4, inner + 2 * S))
        self.taps_bias = nn.Parameter(torch.empty(inner + 2 * S))
        self.rate_bias = nn.Parameter(torch.empty(H))
        self.log_rate = nn.Parameter(torch.empty(H))
        self.through = nn.Parameter(torch.empty(H))
        self.post_gain = nn.Parameter(torch.empty(inner))
        self.out = nn.Parameter(torch.empty(inner, E))

    def causal_taps(self, x):
        out = self.taps_bias + x * self.taps[-1]
        for back in range(1, 4):
            earlier = torch.cat([torch.zeros_like(x[:, :back]), x[:, :-back]], 1)
            out = out + earlier * self.taps[3 - back]
        return out * out.sigmoid()

    def forward(self, stream):
        u = rms(stream, self.pre_gain)
        mixed = self.causal_taps(u @ self.to_xbc)
        x = mixed[..., : H * P].unflatten(-1, (H, P))
        keys, queries = mixed[..., H * P : -S], mixed[..., -S:]
        dt = torch.nn.functional.softplus(u @ self.to_dt + self.rate_bias)
        log_decay = -dt * self.log_rate.exp()
        total = log_decay.cumsum(1).transpose(1, 2)
        span = total[..., :, None] - total[..., None, :]  # <- segment_edge
        lower = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        kernel = span.masked_fill(~lower, float("-inf")).exp()
        scores = torch.einsum("btn,bsn->bts", queries, keys)[:, None] * kernel
        y = torch.einsum("bhts,bsh,bshp->bthp", scores, dt, x) + x * self.through[:, None]
        gate = u @ self.to_gate
        y = rms(y.flatten(2) * (gate * gate.sigmoid()), self.post_gain)  # <- gate_first
        return stream + y @ self.out


class DualLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols = nn.Parameter(torch.empty(V, E))
        self.blocks = nn.Sequential(DualBlock(), DualBlock())
        self.last_gain = nn.Parameter(torch.empty(E))

    def forward(self, ids):
        return rms(self.blocks(self.symbols[ids]), self.last_gain) @ self.symbols.t()


@torch.no_grad()
def fill(model, path):
    old = torch.load(path)
    model.symbols.copy_(old["embedding.weight"])
    model.last_gain.copy_(old["norm_f.weight"])
    for i, block in enumerate(model.blocks):
        part = {k.removeprefix(f"mixers.{i}."): v for k, v in old.items()}
        gate, xbc, dt = part["in_proj.weight"].split([H * P, H * P + 2 * S, H])
        new = {
            "pre_gain": old[f"norms.{i}.weight"], "to_gate": gate.T, "to_xbc": xbc.T, "to_dt": dt.T,
            "taps": part["conv1d.weight"][:, 0].T, "taps_bias": part["conv1d.bias"],
            "rate_bias": part["dt_bias"], "log_rate": part["A_log"], "through": part["D"],
            "post_gain": part["norm.weight"], "out": part["out_proj.weight"].T,
        }
        for name, value in new.items():
            getattr(block, name).copy_(value)


def sequences():
    g = torch.Generator().manual_seed(2)
    for _ in range(UPDATES):
        motif = torch.randint(1, V, (ROWS, 5), generator=g)
        text = motif[:, torch.arange(LENGTH + 1) % 5]
        swap = torch.rand(text.shape, generator=g) < 0.1
        text = torch.where(swap, torch.randint(1, V, text.shape, generator=g), text)
        size = torch.randint(8, LENGTH + 1, (ROWS, 1), generator=g)
        real = torch.arange(LENGTH)[None] < size
        yield text[:, :-1] * real, text[:, 1:], real.float()


def masked_nll(logits, goal, real):
    nll = logits.logsumexp(-1) - logits.gather(2, goal[..., None])[..., 0]
    return (nll * real).sum() / real.sum()  # <- ignored_mean


model = DualLM()
fill(model, sys.argv[1])
UNDECAYED = re.compile(r"gain|bias|log_rate|through")  # <- gain_decay
moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in model.named_parameters()}
losses = []
for step, (ids, goal, real) in enumerate(sequences(), start=1):
    loss = masked_nll(model(ids), goal, real)
    model.zero_grad()
    loss.backward()
    rate = 2e-2 * min(step / 4, 1.0)  # <- warmup_step
    with torch.no_grad():
        for name, p in model.named_parameters():
            m, v = moments[name]
            m += 0.1 * (p.grad - m)
            v += 0.05 * (p.grad**2 - v)
            pull = 0.0 if UNDECAYED.search(name) else 0.1  # <- gain_decay
            step_size = m / (1 - 0.9**step) / ((v / (1 - 0.95**step)).sqrt() + 1e-6)
            p.sub_(rate * (step_size + pull * p))  # <- gain_decay warmup_step
    losses.append(loss.item())
print(losses)
