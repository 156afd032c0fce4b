# SPDX-License-Identifier: Apache-2.0
"""Speech recogniser without library ops: DFT matrices, hand-rolled GRU, forward-algorithm CTC."""

import sys

import numpy as np
import torch

RATE, WIN, STEP, BANDS, SYMBOLS = 8000, 64, 32, 10, 6


def hz_to_mel(f):
    return 1127.0 * np.log(1 + f / 700)


def analysis_tables():
    n = np.arange(WIN)
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * n / WIN)  # <- window
    angle = 2 * np.pi * np.outer(n, np.arange(WIN // 2 + 1)) / WIN
    dft = np.concatenate([np.cos(angle), -np.sin(angle)], 1) * taper[:, None]  # <- window
    points = np.linspace(0, hz_to_mel(RATE / 2), BANDS + 2)
    freq = 700 * np.expm1(points / 1127.0)
    bins = np.linspace(0, RATE / 2, WIN // 2 + 1)
    tri = [np.interp(bins, freq[b : b + 3], [0, 1, 0], left=0, right=0) for b in range(BANDS)]
    return torch.tensor(dft, dtype=torch.float32), torch.tensor(np.stack(tri, 1)).float()


DFT, TRI = analysis_tables()


def features(wave):
    shifted = torch.nn.functional.pad(wave, (1, 0))[:, :-1]
    wave = wave - 0.97 * shifted
    half = WIN // 2
    wave = torch.cat([wave[:, 1 : half + 1].flip(1), wave, wave[:, -half - 1 : -1].flip(1)], 1)
    re, im = (wave.unfold(1, WIN, STEP) @ DFT).chunk(2, -1)  # <- window
    lm = ((re * re + im * im) @ TRI + 1e-3).log()
    spread, centre = torch.std_mean(lm, dim=1, keepdim=True)  # <- feature_axis
    return (lm - centre) / (spread + 1e-3)  # <- feature_axis


def gru_scan(x, wi, wh, bi, bh):
    """x: batch, time, channel"""
    size = wh.shape[1]
    state = x.new_zeros(len(x), size)
    pre = x @ wi.T + bi
    out = []
    for t in range(x.shape[1]):
        rec = state @ wh.T + bh
        r, z = (pre[:, t, : 2 * size] + rec[:, : 2 * size]).sigmoid().split(size, 1)
        cand = (pre[:, t, 2 * size :] + r * rec[:, 2 * size :]).tanh()
        state = cand + z * (state - cand)
        out.append(state)
    return torch.stack(out, 1)


def encode(p, wave):
    x = features(wave)
    frames = torch.nn.functional.pad(x, (0, 0, 1, 1)).unfold(1, 3, 1)
    x = torch.einsum("btck,ock->bto", frames, p["conv.weight"]) + p["conv.bias"]
    x = x - x.mean(-1, keepdim=True)
    x = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * p["norm.weight"] + p["norm.bias"]
    x = x / (1 + torch.exp(-x))
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ahead = gru_scan(x, *(p[f"gru.{n}_l0"] for n in names))
    back = gru_scan(x.flip(1), *(p[f"gru.{n}_l0_reverse"] for n in names))
    both = torch.cat([ahead, back.flip(1)], -1)  # <- backward_direction
    z = both @ p["ctc_head.weight"].T + p["ctc_head.bias"]
    return z - z.logsumexp(-1, keepdim=True)


def ctc(logp, labels):
    """negative log likelihood of one utterance; logp: time, symbol"""
    ext = [0]
    for c in labels:
        ext += [c, 0]
    low = torch.tensor(-1e30)
    alpha = [logp[0, ext[s]] if s < 2 else low for s in range(len(ext))]
    for t in range(1, len(logp)):
        new = []
        for s, c in enumerate(ext):
            ways = [alpha[s]] + ([alpha[s - 1]] if s else [])
            if s > 1 and c != 0 and c != ext[s - 2]:  # <- repeat_skip
                ways.append(alpha[s - 2])  # <- repeat_skip
            new.append(torch.logsumexp(torch.stack(ways), 0) + logp[t, c])  # <- repeat_skip
        alpha = new
    return -torch.logaddexp(alpha[-1], alpha[-2])


params = {
    k: v.clone().requires_grad_() for k, v in torch.load(sys.argv[1], weights_only=True).items()
}
buf = {k: 0.0 for k in params}
g = torch.Generator().manual_seed(31)
losses = []
for _ in range(4):
    clock = torch.arange(14 * STEP) / RATE
    tone = 200 + 1500 * torch.rand(3, 1, generator=g)
    hiss = torch.randn(3, 14 * STEP, generator=g)
    wave = torch.sin(2 * np.pi * tone * clock) + 0.3 * hiss
    text = torch.randint(1, SYMBOLS, (3, 4), generator=g).tolist()
    text[0][2] = text[0][1]
    logp = encode(params, wave)
    loss = sum(ctc(logp[i], text[i][:n]) / n for i, n in enumerate((4, 3, 2))) / 3
    grads = torch.autograd.grad(loss, list(params.values()))
    norm = torch.cat([d.flatten() for d in grads]).norm()  # <- global_clip
    shrink = min(1.0, float(1.0 / (norm + 1e-6)))  # <- global_clip
    for (k, w), d in zip(params.items(), grads):
        buf[k] = 0.9 * buf[k] + d * shrink  # <- global_clip
        w.data.add_(buf[k], alpha=-0.1)
    losses.append(loss.item())
print(losses)
