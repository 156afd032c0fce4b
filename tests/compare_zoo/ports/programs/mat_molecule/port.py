# SPDX-License-Identifier: Apache-2.0
"""Graph regressor on padded dense tensors: (molecule, receiver, sender) adjacency, masked ops."""

import sys

import torch
import torch.nn.functional as F

KINDS, TYPES, W, SIZES = 6, 3, 8, (4, 6, 3, 5)
MAX = max(SIZES)


def collate(gen):
    batch = len(SIZES)
    kind = torch.zeros(batch, MAX, dtype=torch.long)
    bond = torch.zeros(batch, MAX, MAX, dtype=torch.long)
    dist = torch.zeros(batch, MAX, MAX)
    for m, n in enumerate(SIZES):
        kind[m, :n] = torch.randint(0, KINDS, (n,), generator=gen)
        for i in range(1, n):
            j = int(torch.randint(0, i, (1,), generator=gen))
            b = int(torch.randint(0, TYPES, (1,), generator=gen))
            d = float(torch.rand(1, generator=gen)) + 1
            bond[m, i, j] = bond[m, j, i] = b
            dist[m, j, i], dist[m, i, j] = d, d * 1.1
    real = torch.arange(MAX) < torch.tensor(SIZES)[:, None]
    return kind, bond, dist, real, torch.randn(batch, 2, generator=gen)


def adopt(sd):
    p = {"atoms": sd["atom.weight"], "bonds": sd["message.edge.weight"]}
    both = torch.cat([sd["message.net.0.weight"], sd["message.att.weight"]]).T
    p["send"], p["recv"], p["edge"], p["len"] = both.split([W, W, W, 1])
    p["msg_b"] = torch.cat([sd["message.net.0.bias"], sd["message.att.bias"]])
    p["msg_out"], p["msg_out_b"] = sd["message.net.2.weight"].T, sd["message.net.2.bias"]
    for new, old in (("x", "ih"), ("h", "hh")):
        p["gru_" + new] = sd[f"update.weight_{old}"].T
        p[f"gru_{new}b"] = sd[f"update.bias_{old}"]
    p["bn_g"], p["bn_b"] = sd["bn.weight"], sd["bn.bias"]
    p["top_gate"], p["top_gate_b"] = sd["gate.weight"][0], sd["gate.bias"]
    p["top_out"], p["top_out_b"] = sd["readout.weight"].T, sd["readout.bias"]
    p["unc"] = torch.zeros(2)
    return {k: v.clone().requires_grad_() for k, v in p.items()}


def exchange(p, h, bond, dist):
    linked = dist > 0
    pre = (h @ p["send"])[:, None, :, :] + (h @ p["recv"])[:, :, None, :]  # <- direction
    pre = pre + (p["bonds"] @ p["edge"])[bond] + dist[..., None] * p["len"][0] + p["msg_b"]
    score = F.leaky_relu(pre[..., W], 0.2).masked_fill(~linked, -1e9)
    alpha = torch.softmax(score, dim=2) * linked  # <- neighbour_norm
    hidden = torch.logaddexp(2 * pre[..., :W], torch.zeros(())) / 2  # <- softplus
    mean = torch.einsum("brs,brsc->brc", alpha, hidden)  # <- direction
    return mean @ p["msg_out"] + p["msg_out_b"] * alpha.sum(2)[..., None]


def gru(p, x, h):
    a, b = x @ p["gru_x"] + p["gru_xb"], h @ p["gru_h"] + p["gru_hb"]
    reset = torch.sigmoid(a[..., :W] + b[..., :W])
    keep = torch.sigmoid(a[..., W : 2 * W] + b[..., W : 2 * W])
    return keep * h + (1 - keep) * torch.tanh(a[..., 2 * W :] + reset * b[..., 2 * W :])


def predict(p, kind, bond, dist, real):
    first = state = p["atoms"][kind]
    for _ in range(2):
        state = gru(p, exchange(p, state, bond, dist), state)
    rows = state[real]  # <- batch_rows
    var, mean = torch.var_mean(rows, 0, correction=0)  # <- batch_rows
    state = (state - mean) / (var + 1e-5).sqrt() * p["bn_g"] + p["bn_b"]  # <- batch_rows
    gate = torch.cat([state, first], -1) @ p["top_gate"] + p["top_gate_b"]
    gate = gate.sigmoid() * real
    return torch.einsum("bn,bnc->bc", gate, state) @ p["top_out"] + p["top_out_b"]


def robust(e, delta=0.7):
    a = e.abs()
    return torch.where(a <= delta, 0.5 * e * e, delta * (a - 0.5 * delta))


params = adopt(torch.load(sys.argv[1], weights_only=True))
rates = {k: 0.05 if k == "unc" else 0.03 if k.startswith("top_") else 0.01 for k in params}
first = {k: torch.zeros_like(v) for k, v in params.items()}
second = {k: torch.zeros_like(v) for k, v in params.items()}
gen = torch.Generator().manual_seed(61)
losses = []
for t in range(1, 6):
    *inputs, y = collate(gen)
    task = robust(predict(params, *inputs) - y).mean(0)
    loss = (task / params["unc"].exp()).sum() + params["unc"].sum() / 2
    grads = torch.autograd.grad(loss, list(params.values()))
    with torch.no_grad():
        for (k, w), g in zip(params.items(), grads):
            first[k] += 0.1 * (g - first[k])
            second[k] += 0.001 * (g * g - second[k])
            unbias = (1 - 0.999**t) ** 0.5  # <- adam_bias
            rate = rates[k] / (1 - 0.9**t)  # <- adam_bias
            w -= rate * first[k] / (second[k].sqrt() / unbias + 1e-3)  # <- adam_bias
    losses.append(loss.item())
print(losses)
