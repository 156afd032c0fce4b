# SPDX-License-Identifier: Apache-2.0
"""ViT with depth-stacked weights in a dict pytree, per-image forward under vmap, hand-written
AdamW."""
import sys
from math import cos, pi

import torch
from torch.func import grad_and_value, vmap

D, H, L, C = 24, 3, 2, 6
DH = D // H


def import_weights(path):
    s = torch.load(path, weights_only=True)
    st = lambda fmt: torch.stack([s[fmt.format(i)] for i in range(L)])
    qkv = st("blocks.{}.attn.qkv.weight").view(L, 3, H, DH, D)
    tok = s["pos_embed"][0].clone()
    w = {
        "out_w": s["head.weight"].T, "out_b": s["head.bias"],
        "lnf_g": s["norm.weight"], "lnf_b": s["norm.bias"],
        "ln_g": torch.stack([st("blocks.{}.norm1.weight"), st("blocks.{}.norm2.weight")], 1),
        "ln_b": torch.stack([st("blocks.{}.norm1.bias"), st("blocks.{}.norm2.bias")], 1),
        "wq": qkv[:, 0].permute(0, 1, 3, 2), "wk": qkv[:, 1].permute(0, 1, 3, 2),
        "wv": qkv[:, 2].permute(0, 1, 3, 2),
        "wo": st("blocks.{}.attn.proj.weight").view(L, D, H, DH).permute(0, 2, 3, 1),
        "bo": st("blocks.{}.attn.proj.bias"),
        "w1": st("blocks.{}.mlp.0.weight").mT, "b1": st("blocks.{}.mlp.0.bias"),
        "w2": st("blocks.{}.mlp.2.weight").mT, "b2": st("blocks.{}.mlp.2.bias"),
        "pos": tok, "cls": s["cls_token"][0, 0],
        "emb_w": s["patch_embed.weight"].flatten(1).T, "emb_b": s["patch_embed.bias"],
    }
    return {k: v.clone().contiguous() for k, v in w.items()}


DECAYED = {"out_w", "wq", "wk", "wv", "wo", "w1", "w2", "emb_w"}  # <- decay_group


def ln(x, g, b):
    d = x - x.mean(-1, keepdim=True)
    return d / torch.sqrt((d * d).mean(-1, keepdim=True) + 1e-6) * g + b


def single(w, im):
    """One 16x16 image -> logits."""
    t = (im.reshape(4, 4, 4, 4).transpose(1, 2).reshape(16, 16)  # <- patch_order
         @ w["emb_w"] + w["emb_b"])  # <- patch_order
    x = torch.cat([w["cls"][None], t]) + w["pos"]
    for l in range(L):
        h = ln(x, w["ln_g"][l, 0], w["ln_b"][l, 0])
        q, k, v = (torch.einsum("nd,hde->hne", h, w[n][l]) for n in ("wq", "wk", "wv"))
        a = torch.einsum("hne,hme->hnm", q / DH ** 0.5, k)
        a = torch.exp(a - a.amax(-1, keepdim=True).detach())
        a = a / a.sum(-1, keepdim=True)
        x = x + torch.einsum("hnm,hme,hed->nd", a, v, w["wo"][l]) + w["bo"][l]
        h = ln(x, w["ln_g"][l, 1], w["ln_b"][l, 1]) @ w["w1"][l] + w["b1"][l]
        h = 0.5 * h * (1 + torch.erf(h * 0.7071067811865476))  # <- gelu_kind
        x = x + h @ w["w2"][l] + w["b2"][l]
    return ln(x[0], w["lnf_g"], w["lnf_b"]) @ w["out_w"] + w["out_b"]


def objective(w, ims, soft):
    z = vmap(single, in_dims=(None, 0))(w, ims)
    return -(soft * torch.log_softmax(z, -1)).sum() / len(z)  # <- mix_label


params = import_weights(sys.argv[1])
shadow = {k: v.clone() for k, v in params.items()}
m1 = {k: torch.zeros_like(v) for k, v in params.items()}
m2 = {k: torch.zeros_like(v) for k, v in params.items()}
step_fn = grad_and_value(objective)
B1, B2, EPS = 0.9, 0.98, 1e-6
gen = torch.Generator().manual_seed(5)
losses = []
for t in range(1, 6):
    ims = torch.randn(12, 1, 16, 16, generator=gen)[:, 0]
    hot = torch.eye(C)[torch.randint(0, C, (12,), generator=gen)]
    perm = torch.randperm(12, generator=gen)
    lam = torch.rand((), generator=gen).item()
    g, value = step_fn(params, ims[perm].mul(1 - lam) + lam * ims,  # <- mix_label
                       hot[perm].mul(1 - lam) + lam * hot)  # <- mix_label
    norm = torch.sqrt(sum(x.square().sum() for x in g.values()))
    shrink = torch.clamp(0.5 / (norm + 1e-6), max=1.0)
    lr = 2e-3 * (t / 2 if t <= 2 else 0.5 + 0.5 * cos(pi * (t - 3) / 3))  # <- warm_up
    c2 = (1 - B2 ** t) ** 0.5
    for k in params:
        gk = g[k] * shrink
        m1[k].lerp_(gk, 1 - B1)
        m2[k].lerp_(gk * gk, 1 - B2)
        # bias corrections folded into rate and epsilon
        upd = (lr * c2 / (1 - B1 ** t)) * m1[k] / (m2[k].sqrt() + EPS * c2)  # <- warm_up
        if k in DECAYED:  # <- decay_group
            upd = upd + lr * 0.05 * params[k]  # <- decay_group
        params[k] = params[k] - upd
        shadow[k].lerp_(params[k], 0.1)
    losses.append(value.item())
print(losses)
