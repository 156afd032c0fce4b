# SPDX-License-Identifier: Apache-2.0
"""The small Evoformer as functions of one example on a dictionary of parameters, fused projections,
einsum everywhere; vmap and grad of torch.func make the gradients of all examples at once.
"""

import sys

import torch
from torch.func import grad_and_value, vmap

AA, S, L, CM, CZ, H, BINS = 9, 4, 7, 16, 12, 2, 6


FUSED = {
    "qkv": ("row.q", "row.k", "row.v"),
    "opm.ab": ("opm.a", "opm.b"),
    "tri.values": ("triangle.left", "triangle.right"),
    "tri.gates": ("triangle.left_gate", "triangle.right_gate", "triangle.gate"),
    "pair_bias": ("row.pair_bias",),
    "head.msa": ("masked_msa",),
    "head.pairs": ("distogram",),
}
ALONE = ("row.norm_m", "row.norm_z", "row.gate", "row.out", "opm.norm", "opm.out")
FUSED |= {name: (name,) for name in ALONE}
FUSED |= {f"tri.{name}": (f"triangle.{name}",) for name in ("norm_in", "norm_out", "out")}


def restore(path):
    """Weights [in, out]; the tables of pairs below each other."""
    old = {k.removeprefix("block."): v for k, v in torch.load(path).items()}
    new = {"msa": old["embed_msa.weight"]}
    new["pair"] = torch.cat([old[f"{name}.weight"] for name in ("left", "right", "relpos")])
    for name, sources in FUSED.items():
        for kind in ("weight", "bias"):
            parts = [old[f"{s}.{kind}"] for s in sources if f"{s}.{kind}" in old]
            if parts:
                new[f"{name}.{kind[0]}"] = torch.cat(parts).t().contiguous()
    return new


def norm(w, name, x):
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return x * w[f"{name}.w"] + w[f"{name}.b"]


def dense(w, name, x):
    return x @ w[f"{name}.w"] + w[f"{name}.b"]


def row_attention(w, m, z):
    m = norm(w, "row.norm_m", m)
    q, k, v = (m @ w["qkv.w"]).view(S, L, 3, H, CM // H).unbind(2)
    z = norm(w, "row.norm_z", z)
    bias = torch.einsum("ijc,ch->hij", z, w["pair_bias.w"])  # <- pair_bias
    scores = torch.einsum("sihd,sjhd->shij", q, k) * (CM // H) ** -0.5 + bias  # <- pair_bias
    y = torch.einsum("shij,sjhd->sihd", scores.softmax(3), v).reshape(S, L, CM)
    return dense(w, "row.out", dense(w, "row.gate", m).sigmoid() * y)


def outer_product_mean(w, m):
    a, b = dense(w, "opm.ab", norm(w, "opm.norm", m)).chunk(2, -1)
    outer = torch.einsum("sia,sjb->ijab", a, b).reshape(L, L, 25) / S  # <- outer
    return dense(w, "opm.out", outer)  # <- outer


def triangle(w, z):
    z = norm(w, "tri.norm_in", z)
    gates = dense(w, "tri.gates", z).sigmoid()
    a, b = (dense(w, "tri.values", z) * gates[..., : 2 * CZ]).chunk(2, -1)
    x = torch.einsum("ikc,jkc->ijc", a, b)  # <- outgoing
    return gates[..., 2 * CZ :] * dense(w, "tri.out", norm(w, "tri.norm_out", x))


def cross_entropy(logits, labels):
    return logits.logsumexp(-1) - logits.gather(-1, labels[..., None])[..., 0]


def loss_of(params, msa, hidden, bins):
    seen = torch.where(hidden, AA, msa)
    m, place = params["msa"][seen], torch.arange(L)
    offset = torch.clamp(place[:, None] - place, -3, 3) + 3 + 2 * (AA + 1)
    first, second = params["pair"][seen[0]], params["pair"][seen[0] + AA + 1]
    z = first[:, None] + second[None] + params["pair"][offset]
    m = m + row_attention(params, m, z)
    z = z + outer_product_mean(params, m)
    z = z + triangle(params, z)
    pairs = dense(params, "head.pairs", z)
    far = cross_entropy(pairs + pairs.transpose(0, 1), bins).mean()
    guessed = cross_entropy(dense(params, "head.msa", m), msa)
    return (guessed * hidden).sum() / hidden.sum() + 0.5 * far


def clipped(grads):
    """Each example's gradients within the unit ball, then their mean."""
    norms = sum(g.flatten(1).square().sum(1) for g in grads.values()).sqrt()  # <- clip
    share = (1 / (norms + 1e-6)).clamp(max=1)  # <- clip
    return {k: torch.tensordot(share, g, 1) / len(share) for k, g in grads.items()}  # <- clip


def batch(rng, size):
    rows = []
    for _ in range(size):
        msa = torch.randint(0, AA, (S, L), generator=rng)
        hidden = torch.rand(S, L, generator=rng) < 0.3
        rows.append((msa, hidden, torch.randint(0, BINS, (L, L), generator=rng)))
    return [torch.stack(column) for column in zip(*rows)]


params = restore(sys.argv[1])
average = dict(params)
m, v, top = ({k: torch.zeros_like(p) for k, p in params.items()} for _ in range(3))
each = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0, 0))
rng = torch.Generator().manual_seed(102)
losses = []
for t in range(1, 4):
    grads, values = each(params, *batch(rng, 2))
    for k, g in clipped(grads).items():
        m[k] = torch.lerp(m[k], g, 0.1)
        v[k] = torch.lerp(v[k], g * g, 0.001)
        top[k] = torch.maximum(top[k], v[k])
        root = (top[k] / (1 - 0.999**t)).sqrt() + 1e-3
        params[k] = params[k] - 0.02 / (1 - 0.9**t) * m[k] / root
        keep = min(0.9, t / (9 + t))  # <- average
        average[k] = keep * average[k] + (1 - keep) * params[k]  # <- average
    losses.append(values.mean().item())
losses.append(loss_of(average, *(x[0] for x in batch(rng, 1))).item())
