# SPDX-License-Identifier: Apache-2.0
"""Convolutional mode of the diagonal SSM in real arithmetic: closed-form kernel, Toeplitz
product, real/imag pairs."""
import sys

import torch

ck = torch.load(sys.argv[1], weights_only=True)
LEN, NB = 14, 2


def leaf(t):
    return t.detach().clone().contiguous().requires_grad_(True)


P = {}
for part, names in {"decay_log": "ssm.log_A_real", "freq": "ssm.A_imag", "dt_log": "ssm.log_dt",
                    "skip": "ssm.D"}.items():
    P[part] = leaf(torch.stack([ck[f"blocks.{i}.{names}"] for i in range(NB)]))
c = torch.stack([ck[f"blocks.{i}.ssm.C"] for i in range(NB)])
P["c_re"], P["c_im"] = leaf(c.real), leaf(c.imag)
SSM = set(P)
glu_w = torch.stack([ck[f"blocks.{i}.glu.weight"] for i in range(NB)])
glu_b = torch.stack([ck[f"blocks.{i}.glu.bias"] for i in range(NB)])
P["val_w"], P["gate_w"] = (leaf(w.mT) for w in glu_w.chunk(2, 1))
P["val_b"], P["gate_b"] = (leaf(b) for b in glu_b.chunk(2, 1))
P["ln"] = leaf(torch.stack([torch.stack([ck[n + ".weight"], ck[n + ".bias"]])
                            for n in ("blocks.0.norm", "blocks.1.norm", "norm")]))
P["emb"], P["dec_w"], P["dec_b"] = (leaf(ck["encoder.weight"]), leaf(ck["decoder.weight"].T),
                                    leaf(ck["decoder.bias"]))

LAG = (torch.arange(LEN)[:, None] - torch.arange(LEN)[None, :])
CAUSAL = (LAG >= 0).float()


def kernels():
    """All layers at once -> [NB, D, LEN] with K_l = 2 Re(C B_bar exp(l dt A))."""
    dt = P["dt_log"].exp()[..., None]
    a, b = -P["decay_log"].exp(), P["freq"]                     # A = a + ib
    mag = torch.exp(a * dt)
    er, ei = mag * torch.cos(b * dt) - 1, mag * torch.sin(b * dt)
    sq = a * a + b * b
    br, bi = (er * a + ei * b) / sq, (ei * a - er * b) / sq      # (e^{dtA} - 1) / A
    gr = P["c_re"] * br - P["c_im"] * bi
    gi = P["c_re"] * bi + P["c_im"] * br
    l = torch.arange(LEN, dtype=torch.float32)  # <- lag_shift
    env = torch.exp((a * dt)[..., None] * l)  # <- lag_shift
    ang = (b * dt)[..., None] * l  # <- lag_shift
    return 2 * (env * (gr[..., None] * ang.cos()  # <- lag_shift
                       - gi[..., None] * ang.sin())).sum(2)  # <- lag_shift


def norm(x, i):
    v, m = torch.var_mean(x, -1, unbiased=False, keepdim=True)
    return torch.addcmul(P["ln"][i, 1], (x - m) * torch.rsqrt(v + 1e-5), P["ln"][i, 0])


def logits(ids):
    toeplitz = kernels()[:, :, LAG.clamp(min=0)] * CAUSAL       # NB D L L
    x = P["emb"][ids]
    for i in range(NB):
        u = norm(x, i)
        y = torch.einsum("dts,bsd->btd", toeplitz[i], u) + P["skip"][i] * u
        y = y * torch.sigmoid(1.5957691216057308 * (y + 0.044715 * y ** 3))  # <- gelu_kind
        x = x + (y @ P["val_w"][i] + P["val_b"][i]) * torch.sigmoid(
            y @ P["gate_w"][i] + P["gate_b"][i])
    return norm(x, 2) @ P["dec_w"] + P["dec_b"]


state = {k: torch.zeros(2, *p.shape) for k, p in P.items()}
gen = torch.Generator().manual_seed(8)
data = torch.randint(0, 30, (5, 6, LEN + 1), generator=gen)
losses = []
for t, ids in enumerate(data):
    z = logits(ids[:, :LEN])
    y = torch.nn.functional.one_hot(ids[:, 1:], 30).to(z.dtype)  # <- target_shift
    zmax = z.detach().max(-1, keepdim=True).values
    loss = ((z - zmax).exp().sum(-1).log() - ((z - zmax) * y).sum(-1)).mean()  # <- target_shift
    for p in P.values():
        p.grad = None
    loss.backward()
    poly = (1 - t / 6) ** 2  # <- poly_power
    k1, k2 = 1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1)
    with torch.no_grad():
        for k, p in P.items():
            lr, wd = (2e-3, 0.0) if k in SSM else (8e-3, 0.1)  # <- group_rate
            m, v = state[k]
            m += 0.1 * (p.grad - m)
            v += 0.001 * (p.grad * p.grad - v)
            p.copy_((1 - lr * poly * wd) * p  # <- group_rate poly_power
                    - lr * poly * (m / k1) / ((v / k2).sqrt() + 1e-6))  # <- group_rate poly_power
    losses.append(loss.item())
print(losses)
