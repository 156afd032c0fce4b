# SPDX-License-Identifier: Apache-2.0
"""Conformer-CTC from scratch: DFT by matrix, gathered relative positions, tap-wise convolution, own CTC recursion."""
import math
import sys

import torch
from torch.nn.functional import layer_norm, linear, pad, silu, unfold

torch.set_num_threads(1)

FRAME, SHIFT, BANDS, RATE, D, HEADS, SYMBOLS = 128, 64, 12, 8000, 16, 2, 7


def front_end_tables():
    n = torch.arange(FRAME, dtype=torch.float64)
    window = 0.5 - 0.5 * torch.cos(2 * math.pi * n / FRAME)  # <- window_symmetric
    turn = 2 * math.pi * torch.outer(n, n[: FRAME // 2 + 1]) / FRAME
    basis = torch.cat([turn.cos(), turn.sin()], 1) * window[:, None]  # <- window_symmetric
    mel_top = 2595 * math.log10(1 + RATE / 1400)
    corner = [700 * (10 ** (mel_top * i / (BANDS + 1) / 2595) - 1) for i in range(BANDS + 2)]
    bank = torch.zeros(FRAME // 2 + 1, BANDS, dtype=torch.float64)
    for k in range(FRAME // 2 + 1):
        hz = k * RATE / FRAME
        for m, (lo, mid, hi) in enumerate(zip(corner, corner[1:], corner[2:])):
            bank[k, m] = max(0.0, min((hz - lo) / (mid - lo), (hi - hz) / (hi - mid)))
    return basis.float(), bank.float()


BASIS, BANK = front_end_tables()


def log_mel(wav):
    re, im = (wav.unfold(1, FRAME, SHIFT) @ BASIS).chunk(2, -1)  # <- window_symmetric
    return torch.log((re.square() + im.square()) @ BANK + 0.01)


def subsample(w, feats):
    """Stride-2 3x3 convolution as patches times a matrix; keeps (batch, time, channel * band)."""
    t, f = (feats.shape[1] + 1) // 2, (feats.shape[2] + 1) // 2
    patches = unfold(feats[:, None], 3, padding=1, stride=2)
    maps = torch.relu(w["sub.weight"].flatten(1) @ patches + w["sub.bias"][:, None])
    return linear(maps.unflatten(2, (t, f)).permute(0, 2, 1, 3).flatten(2), w["proj.weight"], w["proj.bias"])


def ln(w, name, x):
    return layer_norm(x, (D,), w[name + ".weight"], w[name + ".bias"])


def dense(w, name, x):
    return linear(x, w[name + ".weight"], w.get(name + ".bias"))


def feed_forward(w, name, x):
    return dense(w, name + ".3", silu(dense(w, name + ".1", ln(w, name + ".0", x))))


def attention(w, x):
    t = x.shape[1]
    heads = lambda y: y.unflatten(-1, (HEADS, -1))
    spot = torch.arange(t)
    distance = spot[:, None] - spot[None, :]  # <- offset_sign
    omega = 10000.0 ** (-torch.arange(0, D, 2) / D)
    angle = distance[..., None] * omega  # <- offset_sign
    code = torch.cat([angle.sin().unsqueeze(-1), angle.cos().unsqueeze(-1)], -1).reshape(t, t, D)
    rel = heads(dense(w, "att.pos", code))
    q, k, v = (heads(dense(w, "att." + n, x)) for n in "qkv")
    scores = torch.einsum("bihd,bjhd->bhij", q + w["att.u_bias"], k)
    scores = scores + torch.einsum("bihd,ijhd->bhij", q + w["att.v_bias"], rel)  # <- offset_sign
    mix = torch.softmax(scores * (D // HEADS) ** -0.5, -1)
    return dense(w, "att.out", torch.einsum("bhij,bjhd->bihd", mix, v).flatten(2))


def convolution(w, x):
    value, gate = dense(w, "conv.pointwise1", x).chunk(2, -1)  # <- glu_halves
    x = value * gate.sigmoid()  # <- glu_halves
    padded = pad(x, (0, 0, 2, 2))
    x = sum(padded[:, k : k + x.shape[1]] * w["conv.depthwise.weight"][:, k] for k in range(5))
    var, mean = torch.var_mean(x, (0, 1), correction=0)
    x = (x - mean) / torch.sqrt(var + 1e-5) * w["conv.norm.weight"] + w["conv.norm.bias"]
    return dense(w, "conv.pointwise2", silu(x))


def encode(w, wav):
    x = subsample(w, log_mel(wav))  # <- window_symmetric
    x = torch.add(x, feed_forward(w, "ff1", x), alpha=0.5)
    x = x + attention(w, ln(w, "norm_att", x))
    x = x + convolution(w, ln(w, "norm_conv", x))
    x = torch.add(x, feed_forward(w, "ff2", x), alpha=0.5)
    return torch.log_softmax(dense(w, "head", ln(w, "norm_out", x)), -1)


def ctc_one(logp, text):
    """Minus the log likelihood of one text: the forward recursion over blanks and symbols, in log space."""
    states = [0]
    for s in text:
        states += [s, 0]
    skip = torch.tensor([i > 1 and s != 0 and s != states[i - 2] for i, s in enumerate(states)])
    emit = logp[:, states]
    low = -1e30
    alpha = torch.cat([emit[0, :2], emit.new_full((len(states) - 2,), low)])
    for row in emit[1:]:
        one, two = pad(alpha[:-1], (1, 0), value=low), pad(alpha[:-2], (2, 0), value=low)
        alpha = torch.stack([alpha, one, two.masked_fill(~skip, low)]).logsumexp(0) + row
    return -torch.logaddexp(alpha[-1], alpha[-2])


def ctc_mean(logp, texts):
    each = [ctc_one(l, t) / len(t) for l, t in zip(logp, texts)]  # <- ctc_plain_mean
    return sum(each) / len(each)  # <- ctc_plain_mean


def adam_(w, grads, memory, n):
    lr = 0.1 * D**-0.5 * min(n**-0.5, n * 3**-1.5)  # <- noam_ahead
    with torch.no_grad():
        for (name, p), g in zip(w.items(), grads):
            m, v = memory.get(name, (torch.zeros_like(p), torch.zeros_like(p)))
            m, v = memory[name] = m + 0.1 * (g - m), v + 0.02 * (g * g - v)
            p -= lr / (1 - 0.9**n) * m / ((v / (1 - 0.98**n)).sqrt() + 1e-6)  # <- noam_ahead


def adopt(path):
    """Learned weights only; kernels of one-tap and depthwise convolutions lose their unit axis."""
    learned = {k: v for k, v in torch.load(path).items() if "running" not in k and "num_batches" not in k}
    cut = {"conv.pointwise1.weight": 2, "conv.pointwise2.weight": 2, "conv.depthwise.weight": 1}
    return {k: (v.squeeze(cut[k]) if k in cut else v).clone().requires_grad_() for k, v in learned.items()}


w, memory, losses = adopt(sys.argv[1]), {}, []
rng = torch.Generator().manual_seed(99)
for n in range(1, 6):
    wav = torch.randn(3, 1600, generator=rng)
    sizes = torch.randint(2, 5, (3,), generator=rng).tolist()
    rows = torch.randint(1, SYMBOLS, (3, 4), generator=rng).tolist()
    loss = ctc_mean(encode(w, wav), [r[:k] for r, k in zip(rows, sizes)])  # <- ctc_plain_mean
    adam_(w, torch.autograd.grad(loss, list(w.values())), memory, n)  # <- noam_ahead
    losses.append(loss.item())
print(losses)
