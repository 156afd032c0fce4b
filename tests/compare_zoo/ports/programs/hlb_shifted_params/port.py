# SPDX-License-Identifier: Apache-2.0
"""The classifier on effective weights; reparametrised gradients are worked out in the update."""
import sys

import numpy as np
import torch

LR, MU, L2 = 0.05, 0.9, 0.01
src = torch.load(sys.argv[1], weights_only=True)

# What the forward pass sees: gain (not gain - 1), the folded matrix, and the inverse temperature.
state = {
    "table": src["emb.weight"].clone(),
    "gains": 1.0 + torch.stack([src["norm1.weight"], src["norm2.weight"]]),
    "folded": (torch.nn.functional.normalize(src["proj.v"], dim=1).T  # <- fold_axis
               * src["proj.g"].T),  # <- fold_axis
    "readout": src["out.weight"].T.contiguous(),
    "beta": torch.exp(-src["log_temp"]),
}
for t in state.values():
    t.requires_grad_()

# Optimizer-side coordinates of the folded matrix: log-length and direction of each column, and g
direction = src["proj.v"].T / src["proj.v"].T.norm(dim=0)
log_len = src["proj.v"].norm(dim=1).log()
g = src["proj.g"][:, 0].clone()
vel = {k: torch.zeros_like(v) for k, v in state.items() if k != "folded"}
vel["v"], vel["g"] = torch.zeros_like(direction), torch.zeros_like(g)


def unit_rms(x):
    return x / torch.sqrt((x * x).sum(1, keepdim=True) / x.shape[1] + 1e-6)


def nll(ids, y):
    counts = np.zeros((len(ids), 30), dtype=np.float32)
    np.add.at(counts, (np.arange(len(ids))[:, None], ids.numpy()),  # <- repeats
              1.0 / ids.shape[1])  # <- repeats
    h = unit_rms(torch.from_numpy(counts) @ state["table"]) * state["gains"][0]  # <- repeats
    h = unit_rms(h + (h @ state["folded"]).tanh()) * state["gains"][1]
    z = (h * state["beta"]) @ state["readout"]
    onehot = torch.eye(6)[y]
    return (torch.logsumexp(z, 1) - (z * onehot).sum(1)).sum() / len(y)


def kick(key, grad):
    """Velocity form of heavy-ball: returns the displacement."""
    vel[key] = MU * vel[key] - LR * grad  # <- dampened
    return vel[key]


gen = torch.Generator().manual_seed(21)
data = [(torch.randint(0, 30, (20, 7), generator=gen), torch.randint(0, 6, (20,), generator=gen))
        for _ in range(5)]
losses = []
for ids, y in data:
    loss = nll(ids, y)
    gr = dict(zip(state, torch.autograd.grad(loss, list(state.values()))))
    with torch.no_grad():
        for k in ("table", "readout"):
            state[k] += kick(k, gr[k] + L2 * state[k])
        state["gains"] += kick("gains", gr["gains"] + L2 * (state["gains"] - 1.0))  # <- gain_decay

        # t = log temperature = -log beta, dL/dt = -beta * dL/dbeta
        t_grad = -state["beta"] * gr["beta"] - L2 * state["beta"].log()  # <- temp_sign
        state["beta"] *= torch.exp(-kick("beta", t_grad))  # <- temp_sign

        # W = g * u;  dg = <u, dW>,  dv = g/|v| (dW - u <u, dW>)
        length = log_len.exp()
        dg = (direction * gr["folded"]).sum(0)
        dv = (g / length) * (gr["folded"] - direction * dg)
        v = direction * length
        v = v + kick("v", dv + L2 * v)
        g = g + kick("g", dg + L2 * g)
        log_len = 0.5 * v.square().sum(0).log()
        direction = v * torch.exp(-log_len)
        state["folded"].copy_(direction * g)
    losses.append(loss.item())

print(losses)
