# SPDX-License-Identifier: Apache-2.0
"""Self-distillation, functional: student and teacher are vectors, all crops padded into one batch."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

DIM, HEADS, DEPTH, GRID = 16, 2, 2, 3
NEG = torch.finfo(torch.float32).min


class Layout:
    """Names and shapes of the pieces of the parameter vector; matrices first, then the vectors."""

    def __init__(self, tree):
        self.order = sorted(tree, key=lambda k: (tree[k].ndim <= 1, k))
        self.shapes = [tree[k].shape for k in self.order]
        self.sizes = [s.numel() for s in self.shapes]
        self.decayed = sum(n for n, s in zip(self.sizes, self.shapes) if len(s) > 1)

    def pack(self, tree):
        return torch.cat([tree[k].reshape(-1) for k in self.order])

    def unpack(self, vec):
        return {k: c.view(s) for k, c, s in zip(self.order, vec.split(self.sizes), self.shapes)}


def convert(sd):
    t = {"embed.w": sd["backbone.patch_embed.weight"].reshape(DIM, -1).T, "embed.b": sd["backbone.patch_embed.bias"],
         "cls": sd["backbone.cls_token"][0], "pos": sd["backbone.pos_embed"][0],
         "out.g": sd["backbone.norm.weight"], "out.b": sd["backbone.norm.bias"], "proto": sd["head.last"].T,
         "h1.w": sd["head.mlp.0.weight"].T, "h1.b": sd["head.mlp.0.bias"],
         "h2.w": sd["head.mlp.2.weight"].T, "h2.b": sd["head.mlp.2.bias"]}
    for i in range(DEPTH):
        p = f"backbone.blocks.{i}."
        for new, old in (("n1", "norm1"), ("n2", "norm2")):
            t[f"{i}.{new}.g"], t[f"{i}.{new}.b"] = sd[p + old + ".weight"], sd[p + old + ".bias"]
        for new, old in (("o", "proj"), ("up", "fc1"), ("down", "fc2")):
            t[f"{i}.{new}.w"], t[f"{i}.{new}.b"] = sd[p + old + ".weight"].T, sd[p + old + ".bias"]
        for n, w, b in zip("qkv", sd[p + "qkv.weight"].chunk(3), sd[p + "qkv.bias"].chunk(3)):
            t[f"{i}.{n}.w"], t[f"{i}.{n}.b"] = w.T, b
    return {k: v.contiguous() for k, v in t.items()}


def lin(p, k, x):
    return torch.addmm(p[k + ".b"], x.reshape(-1, x.shape[-1]), p[k + ".w"]).view(*x.shape[:-1], -1)


def ln(p, k, x):
    return F.layer_norm(x, (DIM,), p[k + ".g"], p[k + ".b"], 1e-6)


def network(p, patches, valid):
    """patches (n, 9, 48) zero-padded; valid (n, 9)."""
    n = len(patches)
    x = torch.cat([p["cls"].expand(n, 1, DIM), lin(p, "embed", patches)], 1) + p["pos"]
    mask = F.pad(~valid, (1, 0)).float().mul(NEG)[:, None, None, :]
    for i in range(DEPTH):
        y = ln(p, f"{i}.n1", x)
        q, k, v = (lin(p, f"{i}.{c}", y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for c in "qkv")
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = x + lin(p, f"{i}.o", y)
        x = x + lin(p, f"{i}.down", F.gelu(lin(p, f"{i}.up", ln(p, f"{i}.n2", x))))
    h = lin(p, "h2", F.gelu(lin(p, "h1", ln(p, "out", x[:, 0]))))
    h = h / h.norm(dim=-1, keepdim=True)
    return h @ (p["proto"] / p["proto"].norm(dim=0))


def patchify(img):
    cols = F.unfold(img, 4, stride=4).mT
    k = cols.shape[1]
    return F.pad(cols, (0, 0, 0, GRID ** 2 - k)), (torch.arange(GRID ** 2) < k).expand(len(img), -1)


def crops(rng, n=4):
    src = torch.randn(n, 3, 12, 12, generator=rng)
    big = [src + 0.2 * torch.randn(src.shape, generator=rng) for _ in range(2)]
    small = [src[..., o:o + 8, o:o + 8] + 0.2 * torch.randn(n, 3, 8, 8, generator=rng) for o in (0, 4, 2)]
    parts = [patchify(c) for c in big + small]
    return torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts])


tree = convert(torch.load(sys.argv[1]))
lay = Layout(tree)
student = lay.pack(tree).requires_grad_()
teacher = student.detach().clone()
centre = torch.zeros(20)
decay = torch.zeros_like(teacher)
decay[:lay.decayed] = 0.04
opt = torch.optim.Adam([student], lr=1e-3, fused=True)
rng = torch.Generator().manual_seed(310)
pair = 1 - torch.eye(2, 5)                       # which (teacher, student) crops count

losses, entropy = [], []
for it in range(5):
    x, valid = crops(rng)
    with torch.no_grad():
        raw = network(lay.unpack(teacher), x[:8], valid[:8])
        target = ((raw - centre) * 20).softmax(-1).view(2, 4, 20)
        centre += 0.1 * (raw.mean(0) - centre)
    logp = network(lay.unpack(student), x, valid).mul(10).log_softmax(-1).view(5, 4, 20)
    loss = -torch.einsum("tbk,sbk,ts->", target, logp, pair) / (4 * 8)
    (student.grad,) = torch.autograd.grad(loss, student)
    with torch.no_grad():
        student.mul_(1 - 1e-3 * decay)
    opt.step()
    keep = 1 - 0.05 * (math.cos(math.pi * it / 5) + 1)
    teacher = torch.lerp(student.detach(), teacher, keep)
    entropy.append(torch.special.entr(target).sum(-1).mean().item())
    losses.append(loss.detach().item())
print(losses)
