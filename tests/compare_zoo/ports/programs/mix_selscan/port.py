# SPDX-License-Identifier: Apache-2.0
"""Functional S6 language model with a parallel (doubling) scan, weights taken from a checkpoint."""

import sys

import torch

VOCAB, INNER, STATE, RANK, TAPS = 20, 24, 4, 3, 4


def load(path):
    sd = torch.load(path, weights_only=True)
    w = {
        "emb": sd["embedding.weight"],
        "g_in": sd["norm.weight"],
        "g_out": sd["norm_f.weight"],
        "w_in": sd["mixer.in_proj.weight"].t().contiguous(),
        "taps": sd["mixer.conv1d.weight"][:, 0].t().contiguous(),
        "taps_b": sd["mixer.conv1d.bias"],
        "w_sel": sd["mixer.x_proj.weight"].t().contiguous(),
        "w_dt": sd["mixer.dt_proj.weight"].t().contiguous(),
        "b_dt": sd["mixer.dt_proj.bias"],
        "a_log": sd["mixer.A_log"],
        "skip": sd["mixer.D"],
        "w_out": sd["mixer.out_proj.weight"].t().contiguous(),
    }
    return {k: v.clone().requires_grad_() for k, v in w.items()}


def rms(h, gain):
    return gain * h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def swish(h):
    return h * h.sigmoid()


def causal_taps(h, taps, bias):
    steps = h.shape[1]
    lead = h.new_zeros(h.shape[0], TAPS - 1, h.shape[2])
    padded = torch.cat([lead, h], 1)  # <- conv_shift
    acc = bias
    for k in range(TAPS):
        acc = acc + padded[:, k : k + steps] * taps[k]  # <- conv_shift
    return acc


def doubling_scan(a, b):
    """Inclusive scan of h_t = a_t h_{t-1} + b_t along dim 1 in log2(T) rounds."""
    gap, steps = 1, a.shape[1]
    while gap < steps:
        carried = a[:, gap:] * b[:, :-gap] + b[:, gap:]  # <- decay_shift
        joined = a[:, gap:] * a[:, :-gap]
        b = torch.cat([b[:, :gap], carried], 1)
        a = torch.cat([a[:, :gap], joined], 1)
        gap *= 2
    return b


def s6(w, h):
    val, gate = (h @ w["w_in"]).chunk(2, -1)
    val = swish(causal_taps(val, w["taps"], w["taps_b"]))
    sel = val @ w["w_sel"]
    low, b_t, c_t = sel[..., :RANK], sel[..., RANK : RANK + STATE], sel[..., RANK + STATE :]
    pre = low @ w["w_dt"] + w["b_dt"]
    dt = torch.log1p(pre.exp())  # <- delta_softplus
    decay = torch.exp(-torch.einsum("btd,dn->btdn", dt, w["a_log"].exp()))
    drive = torch.einsum("btd,btn->btdn", dt * val, b_t)
    states = doubling_scan(decay, drive)  # <- decay_shift
    mixed = torch.einsum("btdn,btn->btd", states, c_t)
    mixed = mixed + w["skip"] * val  # <- skip_input
    return (mixed * swish(gate)) @ w["w_out"]


def nll(w, seq):
    h = w["emb"][seq[:, :-1]]
    h = h + s6(w, rms(h, w["g_in"]))
    scores = rms(h, w["g_out"]) @ w["emb"].t()
    picked = scores.gather(-1, seq[:, 1:, None])[..., 0]
    return (scores.logsumexp(-1) - picked).mean()


weights = load(sys.argv[1])
names = list(weights)
velocity = {k: torch.zeros_like(v) for k, v in weights.items()}
shrink = {"w_in": 0.1, "w_sel": 0.1, "w_out": 0.1}  # <- no_decay
data = torch.randint(0, VOCAB, (4, 4, 14), generator=torch.Generator().manual_seed(11))

losses = []
for step in range(4):
    value = nll(weights, data[step])
    grads = torch.autograd.grad(value, [weights[k] for k in names])
    with torch.no_grad():
        for k, g in zip(names, grads):
            g = g + shrink.get(k, 0.0) * weights[k]  # <- no_decay
            velocity[k].mul_(0.9).add_(g)
            weights[k].sub_(0.1 * velocity[k])
    losses.append(float(value))
print(losses)
