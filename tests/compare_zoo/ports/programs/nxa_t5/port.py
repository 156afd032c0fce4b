# SPDX-License-Identifier: Apache-2.0
"""T5 as functions over a table of per-head weights; boolean masks, buckets from a loop."""
import math
import sys

import torch

torch.set_num_threads(1)
NH, WIDTH, DEPTH, NB, FAR = 4, 32, 2, 8, 10
PAD, EOS, VOID = 0, 1, -100


def load(path):
    sd, w = torch.load(path, weights_only=True), {}
    for name, t in sd.items():
        part, kind, *rest = name.split(".")
        if kind in ("attn", "cross") and rest[1] in "qkv":
            t = t.view(NH, -1, WIDTH).transpose(1, 2)
        elif kind in ("attn", "cross") and rest[1] == "o":
            t = t.view(WIDTH, NH, -1).permute(1, 2, 0)
        elif kind == "ff" or name.endswith("relative_attention_bias.weight"):
            t = t.t()
        w[name.replace(".weight", "")] = t.clone().contiguous().requires_grad_()
    return w


W = load(sys.argv[1])


def bucket(distance, count):
    half = count // 2
    if distance < half:
        return distance
    return min(count - 1, half + int(math.log(distance / half) / math.log(FAR / half) * half))


def table(n, causal):
    out = torch.zeros(n, n, dtype=torch.long)
    for i in range(n):
        for j in range(n):
            later = NB // 2 if j > i else 0  # <- bucket_sign
            both = later + bucket(abs(j - i), NB // 2)  # <- bucket_sign
            out[i, j] = bucket(max(i - j, 0), NB) if causal else both
    return out


def scaled(x, name):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * W[name]


def attend(at, x, memory, hidden, prior=0.0):
    q, k, v = (torch.einsum("btd,hde->bhte", s, W[f"{at}.{n}"])
               for s, n in ((x, "q"), (memory, "k"), (memory, "v")))
    scores = torch.einsum("bhie,bhje->bhij", q, k) + prior
    if hidden is not None:
        scores = scores.masked_fill(hidden, -1e9)  # <- cross_mask
    mix = torch.einsum("bhij,bhje->bhie", scores.softmax(-1), v)  # <- cross_mask
    return torch.einsum("bhie,hed->bid", mix, W[f"{at}.o"])


def stack(side, x, hidden, memory=None, absent=None):
    causal, step = memory is not None, 0
    places = table(x.shape[1], causal)
    prior = W[f"{side}.attn.0.relative_attention_bias"][:, places]  # <- bucket_sign
    for i in range(DEPTH):
        y = scaled(x, f"{side}.norms.{step}")
        x = x + attend(f"{side}.attn.{i}", y, y, hidden, prior)
        if causal:
            y, step = scaled(x, f"{side}.norms.{step + 1}"), step + 1
            x = x + attend(f"{side}.cross.{i}", y, memory, absent)  # <- cross_mask
        y, step = scaled(x, f"{side}.norms.{step + 1}"), step + 2
        x = x + (y @ W[f"{side}.ff.{i}.0"]).clamp(min=0) @ W[f"{side}.ff.{i}.2"]
    return scaled(x, f"{side}.norms.{step}")


def objective(src, tgt):
    blank = (src == PAD)[:, None, None]
    begin = torch.full_like(tgt[:, :1], PAD)  # <- start_token
    fed = torch.cat([begin, tgt[:, :-1].clamp(min=PAD)], dim=1)  # <- start_token
    future = torch.arange(tgt.shape[1])[:, None] < torch.arange(tgt.shape[1])
    memory = stack("encoder", W["shared"][src], blank)
    given = W["shared"][fed]  # <- start_token
    out = stack("decoder", given, future, memory, absent=blank)  # <- cross_mask
    log_p = torch.log_softmax(out @ W["shared"].t() / math.sqrt(WIDTH), dim=-1)
    keep = tgt != VOID
    nll = -log_p.gather(-1, tgt.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (nll * keep).sum() / keep.sum()  # <- loss_mean


def rms(t):
    return t.square().mean().sqrt()


@torch.no_grad()
def adafactor(grads, memory, t):
    decay = 1 - t ** -0.8
    for name, p in W.items():
        g = grads[name]
        memory[name] = decay * memory.get(name, 0.0) + (1 - decay) * (g * g + 1e-10)
        u = g / memory[name].sqrt()
        u = u / max(1.0, float(rms(u)))
        relative = max(1e-3, float(rms(p)))  # <- param_scale
        p -= 0.02 * relative * u  # <- param_scale


def pairs(count):
    rng = torch.Generator().manual_seed(8)
    for _ in range(count):
        src = torch.randint(2, 45, (4, 12), generator=rng)
        tgt = torch.randint(2, 45, (4, 8), generator=rng)
        for row in range(4):
            src[row, 10 - 2 * row], src[row, 11 - 2 * row:] = EOS, PAD
            tgt[row, 7 - row], tgt[row, 8 - row:] = EOS, VOID
        yield src, tgt


memory, losses = {}, []
for t, (src, tgt) in enumerate(pairs(4), 1):
    loss = objective(src, tgt)
    grads = torch.autograd.grad(loss, list(W.values()))
    adafactor(dict(zip(W, grads)), memory, t)  # <- param_scale
    losses.append(loss.item())
print(losses)
