# SPDX-License-Identifier: Apache-2.0
"""Recurrent LM with explicit gates and a carry; fresh leaves each chunk, one shared token table."""
import sys
import torch

torch.set_num_threads(1)
V, D, B, T = 11, 12, 3, 6


def load(path):
    sd = torch.load(path, weights_only=True)
    out = {"table": sd["embed.weight"], "bias": sd["decoder.bias"]}
    for layer in (0, 1):
        for src, tag in (("ih", "x"), ("hh", "h")):
            for kind, suf in (("weight", ""), ("bias", "b")):
                parts = sd[f"rnn.{kind}_{src}_l{layer}"].chunk(3)
                for gate, part in zip("rzn", parts):
                    out[f"{layer}/{gate}{tag}{suf}"] = (
                        part.T.clone() if kind == "weight" else part.clone())
    return out


def cell(p, layer, x, h):
    g = lambda gate, tag, v: (v @ p[f"{layer}/{gate}{tag}"]  # <- reset_layer
                              + p[f"{layer}/{gate}{tag}b"])
    r = torch.sigmoid(g("r", "x", x) + g("r", "h", h))
    z = torch.sigmoid(g("z", "x", x) + g("z", "h", h))
    n = torch.tanh(g("n", "x", x) + r * g("n", "h", h))  # <- reset_place
    return n + z * (h - n)


def unroll(p, carry, tokens):
    h0, h1 = carry
    logits = []
    for t in tokens.unbind(1):
        h0 = cell(p, 0, p["table"][t], h0)
        h1 = cell(p, 1, h0, h1)  # <- reset_layer
        logits.append(torch.einsum("bd,vd->bv", h1, p["table"]) + p["bias"])
    return torch.stack(logits, 1), (h0, h1)


def chunk_loss(p, carry, x, y):
    logits, carry = unroll(p, carry, x)
    nll = torch.logsumexp(logits, -1) - logits.gather(-1, y[..., None])[..., 0]
    return nll.mean(), 1e-3 * (logits * logits).mean(), carry  # <- ar_reduction


def backprop(params, carry, x, y):
    live = {k: v.detach().requires_grad_() for k, v in params.items()}
    nll, ar, carry = chunk_loss(live, carry, x, y)
    (nll + ar).backward()  # <- ar_reduction
    return nll.item(), {k: v.grad for k, v in live.items()}, tuple(h.detach() for h in carry)


def clip(g, limit):
    norm = sum(v.square().sum() for v in g.values()).sqrt()  # <- clip_norm
    s = limit / (norm + 1e-6)  # <- clip_norm
    return {k: v * s for k, v in g.items()} if s < 1 else g  # <- clip_norm


def rmsprop(params, g, state):
    if not state:
        state = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in params.items()}
    fresh, kept = {}, {}
    for k, v in params.items():
        sq, mom = state[k]
        sq = 0.9 * sq + 0.1 * g[k] * g[k]
        mom = 0.5 * mom + g[k] / (sq.sqrt() + 1e-4)  # <- eps_inside
        fresh[k], kept[k] = v - 4e-3 * mom, (sq, mom)
    return fresh, kept


params, state = load(sys.argv[1]), {}
gen = torch.Generator().manual_seed(8)
text = torch.randint(0, V, (B, 5 * T + 1), generator=gen)
inputs, targets = text[:, :-1].split(T, 1), text[:, 1:].split(T, 1)
carry = (torch.zeros(B, D), torch.zeros(B, D))
losses = []
for i, (x, y) in enumerate(zip(inputs, targets)):
    if i == 3:
        keep = torch.tensor([0.0, 1.0, 1.0])[:, None]
        carry = tuple(h * keep for h in carry)  # <- reset_layer
    value, grads, carry = backprop(params, carry, x, y)
    params, state = rmsprop(params, clip(grads, 0.4), state)
    losses.append(value)

print(losses)
