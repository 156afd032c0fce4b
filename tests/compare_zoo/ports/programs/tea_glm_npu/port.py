# SPDX-License-Identifier: Apache-2.0
"""The prefix model in the manner of an NPU: all sequences of a step packed (TND layout), fused
functions written out, masks that say what is hidden, one flat buffer of parameters.
"""

import math
import sys

import torch
import torch.nn.functional as F

VOCAB, HIDDEN, N, KV, FFN, LAYERS = 40, 32, 4, 2, 48, 2
D = HIDDEN // N


def npu_rms_norm(x, gamma, epsilon=1e-5):
    return F.rms_norm(x, (HIDDEN,), gamma, epsilon)


def npu_rotary_mul(x, cos, sin):
    """x [T, N, R], halves beside each other."""
    one, two = x.chunk(2, -1)  # <- permuted
    return x * cos + torch.cat((-two, one), -1) * sin  # <- permuted


def npu_swiglu(x):
    gate, up = x.chunk(2, -1)
    return up * gate * torch.sigmoid(gate)


def npu_fusion_attention(query, key, value, masks, ends):
    """TND; masks are True where hidden, one a sequence; ends are cumulative lengths."""
    key = key.repeat_interleave(N // KV, dim=1)  # <- groups
    value = value.repeat_interleave(N // KV, dim=1)  # <- groups
    out, start = [], 0
    for hidden, end in zip(masks, ends):
        q, k, v = (x[start:end].transpose(0, 1) for x in (query, key, value))
        scores = torch.baddbmm(hidden * -1e9, q, k.mT, alpha=D**-0.5)  # <- prefix groups
        out.append((scores.softmax(-1) @ v).transpose(0, 1))  # <- groups
        start = end
    return torch.cat(out).flatten(1)


def for_halves(rows):
    """Rows of a projection: in the first half of each head evens first, then odds."""
    heads = rows.unflatten(0, (-1, D))
    turned, rest = heads.split(D // 2, 1)
    turned = turned.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)  # <- permuted
    return torch.cat((turned, rest), 1).flatten(0, 1)


def converted(path):
    old = torch.load(path)
    new = {"embed": old["embedding.weight"], "head": old["output_layer.weight"]}
    new["norms"] = torch.stack([old[f"norms.{i}.weight"] for i in range(2 * LAYERS + 1)])
    sizes = [N * D, KV * D, KV * D]
    for i in range(LAYERS):
        for kind in ("weight", "bias"):
            q, k, v = old[f"attentions.{i}.query_key_value.{kind}"].split(sizes)
            new[f"{i}.q.{kind}"], new[f"{i}.v.{kind}"] = for_halves(q), v
            new[f"{i}.k.{kind}"] = for_halves(k)  # <- permuted
        new[f"{i}.o"] = old[f"attentions.{i}.dense.weight"]
        new[f"{i}.up"] = old[f"mlps.{i}.dense_h_to_4h.weight"]
        new[f"{i}.down"] = old[f"mlps.{i}.dense_4h_to_h.weight"]
    return new


def forward(w, tokens, position, masks, ends):
    freq = torch.exp(torch.arange(0, D // 2, 2) * (-math.log(10000.0) / (D // 2)))
    angle = torch.outer(position, freq).repeat(1, 2)[:, None]
    cos, sin = angle.cos(), angle.sin()
    x = w["embed"][tokens]
    for i in range(LAYERS):
        y = npu_rms_norm(x, w["norms"][2 * i])
        q, k, v = (
            F.linear(y, w[f"{i}.{c}.weight"], w[f"{i}.{c}.bias"]).view(-1, n, D)
            for c, n in (("q", N), ("k", KV), ("v", KV))
        )  # <- permuted
        q, k = (
            torch.cat((npu_rotary_mul(t[..., : D // 2], cos, sin), t[..., D // 2 :]), -1)
            for t in (q, k)
        )  # <- permuted
        x = x + npu_fusion_attention(q, k, v, masks, ends) @ w[f"{i}.o"].T
        y = npu_rms_norm(x, w["norms"][2 * i + 1])
        x = x + npu_swiglu(y @ w[f"{i}.up"].T) @ w[f"{i}.down"].T
    return npu_rms_norm(x, w["norms"][-1]) @ w["head"].T


def packed(rng):
    rows, masks, labels = [], [], []
    for _ in range(2):
        tokens = torch.randint(0, VOCAB, (3, 10), generator=rng)
        sizes = torch.randint(6, 11, (3,), generator=rng).tolist()
        prefixes = torch.randint(2, 5, (3,), generator=rng).tolist()
        for row, size, prefix in zip(tokens, sizes, prefixes):
            hidden = torch.ones(size, size).triu(1)
            hidden[:, :prefix] = 0.0  # <- prefix
            following = F.pad(row[1:size], (0, 1), value=-1)
            following[: prefix - 1] = -1  # <- counted
            rows.append(row[:size])
            masks.append(hidden)
            labels.append(following)
    position = torch.cat([torch.arange(len(r)) for r in rows]).float()
    ends = torch.tensor([len(r) for r in rows]).cumsum(0).tolist()
    return torch.cat(rows), position, masks, ends, torch.cat(labels)


start = converted(sys.argv[1])
flat = torch.cat([t.flatten() for t in start.values()]).requires_grad_()
decays = {k: not (k == "norms" or k.endswith("bias")) for k in start}  # <- decayed
decay = torch.cat([torch.full((t.numel(),), 0.1 * decays[k]) for k, t in start.items()])
m, v, losses = torch.zeros_like(flat), torch.zeros_like(flat), []
rng = torch.Generator().manual_seed(62)
for step in range(1, 5):
    *inputs, labels = packed(rng)
    pieces = flat.split([t.numel() for t in start.values()])
    w = {k: piece.view(t.shape) for (k, t), piece in zip(start.items(), pieces)}
    logp = forward(w, *inputs).log_softmax(-1)
    picked = logp.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    wanted = labels >= 0  # <- counted
    loss = -(picked * wanted).sum() / wanted.sum()  # <- counted
    (g,) = torch.autograd.grad(loss, flat)
    lr = 0.01 * math.cos(math.pi * (step - 1) / 12) ** 2
    with torch.no_grad():
        m.lerp_(g, 0.1)
        v.lerp_(g * g, 0.05)
        ratio = m / (1 - 0.9**step) / ((v / (1 - 0.95**step)).sqrt() + 1e-3)
        flat -= lr * (ratio + decay * flat)  # <- decayed
    losses.append(loss.item())
