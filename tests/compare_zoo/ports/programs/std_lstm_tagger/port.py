# SPDX-License-Identifier: Apache-2.0
"""The tagger with own LSTM cells (time-major, one masked scan a direction) and own RMSprop."""

import sys

import torch

state = torch.load(sys.argv[1], weights_only=True)
params = {"table": state["embedding.weight"], "W": state["proj.weight"], "b": state["proj.bias"]}
for tag, tail in (("fw", ""), ("bw", "_reverse")):
    for gate, rows in zip("ifgo", range(4)):
        cut = slice(14 * rows, 14 * rows + 14)
        params[f"{tag}.{gate}.x"] = state["lstm.weight_ih_l0" + tail][cut]
        params[f"{tag}.{gate}.h"] = state["lstm.weight_hh_l0" + tail][cut]
        params[f"{tag}.{gate}.bx"] = state["lstm.bias_ih_l0" + tail][cut]
        params[f"{tag}.{gate}.bh"] = state["lstm.bias_hh_l0" + tail][cut]
params = {name: value.clone().requires_grad_() for name, value in params.items()}


def cell(tag, x, h, c):
    pre = {}
    for gate in "ifgo":
        name = f"{tag}.{gate}."
        pre[gate] = (
            x @ params[name + "x"].t()
            + params[name + "bx"]
            + h @ params[name + "h"].t()
            + params[name + "bh"]
        )
    keep, write = torch.sigmoid(pre["f"]), torch.sigmoid(pre["i"])
    c = keep * c + write * torch.tanh(pre["g"])  # <- cell
    return torch.sigmoid(pre["o"]) * torch.tanh(c), c  # <- cell


def scan(tag, xs, live, order):
    h = c = xs.new_zeros(xs.shape[1], 14)
    outs = {}
    for t in order:
        h2, c2 = cell(tag, xs[t], h, c)
        on = live[t][:, None]
        h = torch.where(on, h2, h)  # <- reverse
        c = torch.where(on, c2, c)  # <- reverse
        outs[t] = h * on
    return torch.stack([outs[t] for t in range(len(xs))])


def score(tokens, lengths):
    live = torch.arange(9)[:, None] < lengths[None, :]
    xs = params["table"][tokens.t()]
    left = scan("fw", xs, live, range(9))
    right = scan("bw", xs, live, range(8, -1, -1))  # <- reverse
    z = torch.cat([left, right], -1) @ params["W"].t() + params["b"]
    return z.transpose(0, 1), live.t()


def tag_loss(z, tags, live):
    picked = z.gather(2, tags.unsqueeze(2)).squeeze(2)
    each = (z.logsumexp(2) - picked) * live  # <- reduction
    return each.sum() / live.sum()  # <- reduction


square = {name: torch.zeros_like(p) for name, p in params.items()}


def update(lr=4e-3, rho=0.9, eps=1e-2, limit=0.2):  # <- rms clip
    params["table"].grad[0] = 0
    total = torch.sqrt(sum(p.grad.square().sum() for p in params.values()))  # <- clip
    scale = torch.clamp(limit / (total + 1e-6), max=1.0)  # <- clip
    with torch.no_grad():
        for name, p in params.items():
            g = p.grad * scale  # <- clip
            square[name] = rho * square[name] + (1 - rho) * g * g  # <- rms
            p -= lr * g / (square[name].sqrt() + eps)  # <- rms
            p.grad = None


rng = torch.Generator().manual_seed(21)
losses = []
for _ in range(5):
    words = torch.randint(1, 40, (5, 9), generator=rng)
    sizes = torch.randint(3, 10, (5,), generator=rng)
    gold = torch.randint(0, 6, (5, 9), generator=rng)
    words = words * (torch.arange(9) < sizes[:, None])
    z, live = score(words, sizes)
    loss = tag_loss(z, gold, live)
    loss.backward()
    update()  # <- rms
    losses.append(loss.item())
print(losses)
