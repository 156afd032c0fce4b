# SPDX-License-Identifier: Apache-2.0
"""The LoRA decoder on fused projections: queries by group against unrepeated keys, LoRA factors for
the fused matrix; generation from merged weights with a key-value cache, one token at a time.
"""

import sys

import torch

N, KV, D, LAYERS, WINDOW, R, ALPHA = 4, 2, 8, 2, 5, 4, 12
WIDTH, Q, K = N * D, N * D, KV * D


def load(path):
    old = torch.load(path)
    frozen, trained = {}, {}
    for name in ("embed", "norm", "lm_head"):
        frozen[name] = old[f"{name}.weight"]
    for n in range(LAYERS):
        here = f"layers.{n}."
        get = {k.removeprefix(here): v for k, v in old.items() if k.startswith(here)}
        three = [get["q_proj.base.weight"], get["k_proj.weight"], get["v_proj.base.weight"]]
        frozen[f"{n}.qkv"] = torch.cat(three).t()
        for name in ("o_proj.weight", "up.weight", "down.weight"):
            frozen[f"{n}.{name}"] = get[name].t()
        for name in ("norm1.weight", "norm2.weight", "up.bias", "down.bias"):
            frozen[f"{n}.{name}"] = get[name]
        down = torch.cat([get["q_proj.lora_A"], get["v_proj.lora_A"]]).t()
        trained[f"{n}.down"] = down.contiguous().clone().requires_grad_()
        for part in "qv":
            up = get[f"{part}_proj.lora_B"].t()
            trained[f"{n}.up_{part}"] = up.contiguous().clone().requires_grad_()
    return frozen, trained


def rms(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def lora_qkv(h, n):
    base = torch.matmul(h, frozen[f"{n}.qkv"])
    low_q, low_v = torch.matmul(h, trained[f"{n}.down"]).split(R, dim=-1)
    delta_q, delta_v = low_q @ trained[f"{n}.up_q"], low_v @ trained[f"{n}.up_v"]
    gap = delta_q.new_zeros(*delta_q.shape[:-1], K)
    scale = ALPHA / R  # <- scaling
    return base + scale * torch.cat((delta_q, gap, delta_v), dim=-1)  # <- scaling


def merge(n):
    down_q, down_v = trained[f"{n}.down"].chunk(2, dim=1)
    whole = frozen[f"{n}.qkv"].clone()
    whole[:, :Q] += down_q @ trained[f"{n}.up_q"] * (ALPHA / R)
    whole[:, Q + K :] += down_v @ trained[f"{n}.up_v"] * (ALPHA / R)
    return whole


def rotate(x, position):
    """x is (B, S, heads, D), position (B, S) or (S,)."""
    rates = 1000.0 ** (-torch.arange(0, D, 2) / D)
    angle = position[..., None, None] * rates  # <- cache_position
    a, b = x.split(D // 2, dim=-1)
    cos, sin = angle.cos(), angle.sin()  # <- cache_position
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)  # <- cache_position


def attend(q, k, v, seen):
    """Grouped: q (B, S, N, D), k and v (B, T, KV, D), seen (B or 1, S, T)."""
    b, s = q.shape[:2]
    q = q.view(b, s, KV, N // KV, D)  # <- groups
    scores = torch.einsum("bsgrd,btgd->bgrst", q, k) * D**-0.5  # <- groups
    scores = scores + torch.where(seen, 0.0, -1e9)[:, None, None]  # <- window
    out = torch.einsum("bgrst,btgd->bsgrd", torch.softmax(scores, dim=-1), v)  # <- groups
    return out.reshape(b, s, WIDTH)  # <- groups


def block(x, n, qkv, position, seen, cache=None):
    mixed = qkv(rms(x, frozen[f"{n}.norm1.weight"]))  # <- scaling
    b, s, _ = mixed.shape
    q, k, v = mixed.split([Q, K, K], dim=-1)
    q = rotate(q.view(b, s, N, D), position)  # <- cache_position
    k, v = rotate(k.view(b, s, KV, D), position), v.view(b, s, KV, D)  # <- cache_position
    if cache is not None:
        cache.setdefault(n, []).append((k, v))
        k, v = (torch.cat(parts, dim=1) for parts in zip(*cache[n]))
    x = x + attend(q, k, v, seen) @ frozen[f"{n}.o_proj.weight"]
    h = rms(x, frozen[f"{n}.norm2.weight"]) @ frozen[f"{n}.up.weight"] + frozen[f"{n}.up.bias"]
    h = h * h.sigmoid()
    return x + h @ frozen[f"{n}.down.weight"] + frozen[f"{n}.down.bias"]


def band(rows, columns):
    distance = rows[:, None] - columns
    return (distance >= 0) & (distance < WINDOW)  # <- window


frozen, trained = load(sys.argv[1])
moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in trained.items()}
rng = torch.Generator().manual_seed(52)
losses = []
for t in range(1, 5):
    tokens = torch.randint(1, 40, (4, 10), generator=rng)
    prompt = torch.randint(1, 5, (4, 1), generator=rng)
    places = torch.arange(9)
    x = frozen["embed"][tokens[:, :-1]]
    for n in range(LAYERS):
        x = block(x, n, lambda h: lora_qkv(h, n), places, band(places, places)[None])
    logp = torch.log_softmax(rms(x, frozen["norm"]) @ frozen["lm_head"].t(), dim=-1)
    answer = places + 1 >= prompt  # <- prompt_mask
    picked = logp.gather(-1, tokens[:, 1:, None])[..., 0]
    loss = -picked[answer].mean()  # <- prompt_mask
    grads = torch.autograd.grad(loss, list(trained.values()))
    with torch.no_grad():
        for (name, p), g in zip(trained.items(), grads):
            m, v = moments[name]
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            p.mul_(1 - 0.02 * 0.01)
            p.sub_(0.02 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-5))
    losses.append(loss.item())

with torch.no_grad():
    tokens = torch.randint(1, 40, (2, 6), generator=rng)
    pads = torch.tensor([0, 2])
    tokens[1, :2] = 0
    merged = [merge(n) for n in range(LAYERS)]
    cache, done = {}, 0
    for _ in range(4):
        total = done + tokens.shape[1]
        rows, columns = torch.arange(done, total), torch.arange(total)
        position = (rows - pads[:, None]).clamp(min=0)  # <- cache_position
        seen = band(rows, columns) & (columns >= pads[:, None])[:, None]  # <- window
        seen = seen | (rows[:, None] == columns)
        x = frozen["embed"][tokens]
        for n in range(LAYERS):
            x = block(x, n, lambda h: h @ merged[n], position, seen, cache)
        logits = rms(x[:, -1], frozen["norm"]) @ frozen["lm_head"].t()
        top, tokens = logits.max(-1, keepdim=True)
        losses.append((top[:, 0] - logits.logsumexp(-1)).sum().item())
        done = total
