# SPDX-License-Identifier: Apache-2.0
"""The same vision transformer with per-head einsum weights and one flat parameter vector."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

D, H, DEPTH, P, C = 24, 3, 2, 4, 5
HD = D // H
PREFIX = 3


class FlatParams:
    """All weights live in one vector; modules read views of it by name."""

    def __init__(self, tensors, no_decay):
        self.slices, pieces, mask, at = {}, [], [], 0
        for name, t in tensors.items():
            self.slices[name] = (at, at + t.numel(), t.shape)
            pieces.append(t.reshape(-1))
            keep = name.endswith((".b", ".g")) or name in no_decay
            mask.append(torch.full((t.numel(),), 0.0 if keep else 1.0))
            at += t.numel()
        self.vector = torch.cat(pieces).clone().requires_grad_()
        self.decay_mask = torch.cat(mask)

    def views(self):
        return {k: self.vector[a:b].view(shape) for k, (a, b, shape) in self.slices.items()}


def convert(sd):
    out = {
        "cls": sd["cls_token"][0],
        "reg": sd["reg_token"][0],
        "pos": sd["pos_embed"][0],
        "patch.w": sd["patch_embed.proj.weight"].flatten(1).t().contiguous(),
        "patch.b": sd["patch_embed.proj.bias"],
        "last.g": sd["fc_norm.weight"],
        "last.b": sd["fc_norm.bias"],
        "head.w": sd["head.weight"].t().contiguous(),
        "head.b": sd["head.bias"],
    }
    for i in range(DEPTH):
        src, dst = f"blocks.{i}.", f"{i}."
        qkv_w = sd[src + "attn.qkv.weight"].view(3, H, HD, D)
        qkv_b = sd[src + "attn.qkv.bias"].view(3, H, HD)
        for j, letter in enumerate("qkv"):
            out[dst + letter + ".w"] = qkv_w[j].permute(2, 0, 1).contiguous()
            out[dst + letter + ".b"] = qkv_b[j]
        for letter in "qk":
            out[dst + letter + "norm.g"] = sd[src + f"attn.{letter}_norm.weight"]
            out[dst + letter + "norm.b"] = sd[src + f"attn.{letter}_norm.bias"]
        out[dst + "o.w"] = sd[src + "attn.proj.weight"].t().reshape(H, HD, D)
        out[dst + "o.b"] = sd[src + "attn.proj.bias"]
        for a, b in (("up", "fc1"), ("down", "fc2")):
            out[dst + a + ".w"] = sd[src + f"mlp.{b}.weight"].t().contiguous()
            out[dst + a + ".b"] = sd[src + f"mlp.{b}.bias"]
        for n in "12":
            out[dst + f"ln{n}.g"], out[dst + f"ln{n}.b"] = sd[src + f"norm{n}.weight"], sd[src + f"norm{n}.bias"]
            out[dst + f"scale{n}.g"] = sd[src + f"ls{n}.gamma"]
    return out


def layer_norm(x, w, name, axis=(-1,)):
    var, mean = torch.var_mean(x, axis, unbiased=False, keepdim=True)  # <- qk_norm_all_heads
    return (x - mean) / torch.sqrt(var + 1e-6) * w[name + ".g"] + w[name + ".b"]


def attention(x, w, i):
    q, k, v = (torch.einsum("bnd,dhe->bnhe", x, w[f"{i}{c}.w"]) + w[f"{i}{c}.b"] for c in "qkv")
    q = layer_norm(q, w, i + "qnorm", (-1,))  # <- qk_norm_all_heads
    k = layer_norm(k, w, i + "knorm", (-1,))  # <- qk_norm_all_heads
    weights = torch.einsum("bnhe,bmhe->bhnm", q, k).div(math.sqrt(HD)).softmax(-1)
    mixed = torch.einsum("bhnm,bmhe->bnhe", weights, v)
    return torch.einsum("bnhe,hed->bnd", mixed, w[i + "o.w"]) + w[i + "o.b"]


def forward(w, images):
    b, c, s, _ = images.shape
    patches = images.view(b, c, s // P, P, s // P, P).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * P * P)
    x = patches @ w["patch.w"] + w["patch.b"] + w["pos"]
    x = torch.cat([torch.cat([w["cls"], w["reg"]]).expand(b, -1, -1), x], dim=1)
    for i in (f"{n}." for n in range(DEPTH)):
        x = x + w[i + "scale1.g"] * attention(layer_norm(x, w, i + "ln1"), w, i)
        hidden = F.gelu(layer_norm(x, w, i + "ln2") @ w[i + "up.w"] + w[i + "up.b"])
        x = x + w[i + "scale2.g"] * (hidden @ w[i + "down.w"] + w[i + "down.b"])
    pooled = x[:, PREFIX:].mean(1)  # <- pool_prefix_tokens
    return layer_norm(pooled, w, "last") @ w["head.w"] + w["head.b"]


def lr_at(t, peak=4e-3, low=1e-5, start=1e-4, warm=3, total=12):
    if t < warm:
        return start + t * (peak - start) / warm  # <- warmup_one_ahead
    return low + 0.5 * (peak - low) * (1 + math.cos(math.pi * t / total))


def clipped(grad, params, limit):
    return grad * min(1.0, limit / (grad.norm().item() + 1e-6))  # <- clip_each_tensor


def soft_labels(y, lam):
    first = F.one_hot(y, C) * 0.9 + 0.1 / C
    return lam * first + (1 - lam) * first.flip(0)  # <- mixup_partner_labels


params = FlatParams(convert(torch.load(sys.argv[1])), no_decay=("cls", "pos"))
g, lam_gen = torch.Generator().manual_seed(7), torch.Generator().manual_seed(99)
data_x = torch.randn(40, 3, 16, 16, generator=g)
data_y = torch.randint(0, C, (40,), generator=g)
m = torch.zeros_like(params.vector)
v = torch.zeros_like(params.vector)
losses = []
for t in range(5):
    lam = 0.5 + 0.5 * torch.rand((), generator=lam_gen).item()
    x, y = data_x[8 * t : 8 * t + 8], data_y[8 * t : 8 * t + 8]
    logits = forward(params.views(), torch.lerp(x.flip(0), x, lam))
    loss = -(soft_labels(y, lam) * logits.log_softmax(-1)).sum(-1).mean()  # <- mixup_partner_labels
    (grad,) = torch.autograd.grad(loss, params.vector)
    losses.append(loss.item())
    grad = clipped(grad, params, 0.3)  # <- clip_each_tensor
    lr = lr_at(t)  # <- warmup_one_ahead
    with torch.no_grad():
        m = 0.9 * m + 0.1 * grad
        v = 0.99 * v + 0.01 * grad * grad
        m_hat, v_hat = m / (1 - 0.9 ** (t + 1)), v / (1 - 0.99 ** (t + 1))
        params.vector.sub_(lr * (0.05 * params.decay_mask * params.vector + m_hat / (v_hat.sqrt() + 1e-6)))
print(losses)
