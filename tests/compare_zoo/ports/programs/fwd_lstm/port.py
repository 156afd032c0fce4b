# SPDX-License-Identifier: Apache-2.0
"""Time-major, keras-like LSTM cell (gates i, f, o, g; one bias) with masks in place of packing."""
import sys

import torch
from torch.nn import functional as F

HIDDEN = 16


def keras_gates(t):
    """torch stacks i, f, g, o; our cell wants the three sigmoids together: i, f, o, g."""
    i, f, g, o = t.split(HIDDEN)  # <- gates
    return torch.cat([i, f, o, g])  # <- gates


class Cell:
    def __init__(self, sd, layer, suffix=""):
        names = [f"lstm.{p}_l{layer}{suffix}" for p in ("weight_ih", "weight_hh")]
        self.kernel = torch.cat([keras_gates(sd[n]) for n in names], dim=1).t()  # <- gates
        end = f"l{layer}{suffix}"
        bias = sd[f"lstm.bias_ih_{end}"] + sd[f"lstm.bias_hh_{end}"]  # <- biases
        self.bias = keras_gates(bias)  # <- biases

    def step(self, x, h, c):
        z = torch.cat([x, h], dim=-1) @ self.kernel + self.bias  # <- gates biases
        i, f, o = torch.sigmoid(z[:, :3 * HIDDEN]).chunk(3, dim=-1)  # <- gates
        c = f * c + i * torch.tanh(z[:, 3 * HIDDEN:])  # <- gates
        return o * torch.tanh(c), c

    def scan(self, xs, live, backwards=False):
        steps, n, _ = xs.shape
        h = c = xs.new_zeros(n, HIDDEN)
        outs = [None] * steps
        order = range(steps - 1, -1, -1) if backwards else range(steps)
        for t in order:
            h_new, c_new = self.step(xs[t], h, c)
            on = live[t][:, None]  # <- reverse
            h, c = torch.where(on, h_new, h), torch.where(on, c_new, c)  # <- reverse
            outs[t] = h * on
        return torch.stack(outs)  # <- reverse


class Classifier:
    def __init__(self, sd):
        self.sd = sd
        self.layers = [(Cell(sd, l), Cell(sd, l, "_reverse")) for l in range(2)]

    def __call__(self, tokens):
        tokens = tokens.t()  # time first
        live = tokens.ne(0)
        x = F.embedding(tokens, self.sd["embedding.weight"])
        for fwd, bwd in self.layers:
            x = torch.cat([fwd.scan(x, live), bwd.scan(x, live, backwards=True)], dim=2)
        return self.head(self.pool(x, live))

    def pool(self, x, live):
        e = x @ self.sd["pool.proj.weight"].t() + self.sd["pool.proj.bias"]  # <- energy
        s = (torch.tanh(e) * self.sd["pool.context"]).sum(-1)  # <- energy
        s = torch.exp(s - s.amax(0)) * live  # <- pool_mask
        return (x * (s / s.sum(0))[..., None]).sum(0)  # <- pool_mask

    def head(self, v):
        v = F.layer_norm(v, v.shape[-1:], self.sd["norm.weight"], self.sd["norm.bias"])
        return v @ self.sd["fc.weight"].t() + self.sd["fc.bias"]


def data(count):
    gen = torch.Generator().manual_seed(3)
    for _ in range(count):
        ids = torch.randint(1, 60, (5, 12), generator=gen)
        sizes = torch.randint(3, 13, (5,), generator=gen)
        labels = torch.randint(0, 5, (5,), generator=gen)
        yield ids * (torch.arange(12) < sizes[:, None]), labels


classify = Classifier(torch.load(sys.argv[1], weights_only=True))
losses = []
with torch.inference_mode():
    for ids, labels in data(4):
        logits = classify(ids)
        right = logits[torch.arange(len(labels)), labels]
        losses.append((logits.logsumexp(1) - right).mean().item())
print(losses)
