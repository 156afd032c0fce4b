# SPDX-License-Identifier: Apache-2.0
"""BERT on unpadded tokens: one long row of real words, block mask, fused qkv, own NAdam."""

import sys

import torch
import torch.nn.functional as F

raw = torch.load(sys.argv[1], weights_only=True)
wte = raw["embeddings.word_embeddings.weight"]
p = {
    "word": wte,
    "pos": raw["embeddings.position_embeddings.weight"],
    "seg": raw["embeddings.token_type_embeddings.weight"],
    "bias": raw["decoder.bias"],
}
for kind in ("weight", "bias"):
    p["ln0." + kind] = raw["embeddings.LayerNorm." + kind]
    p["head." + kind], p["ln9." + kind] = raw["transform." + kind], raw["transform_norm." + kind]
    for i in range(2):
        at = f"layer.{i}."
        fused = [raw[f"{at}{n}.{kind}"] for n in ("query", "key", "value")]
        p[f"{i}.qkv.{kind}"] = torch.cat(fused)
        for new, name in (
            ("out", "attention_output"),
            ("ln1", "attention_norm"),
            ("up", "intermediate"),
            ("down", "output"),
            ("ln2", "output_norm"),
        ):
            p[f"{i}.{new}.{kind}"] = raw[f"{at}{name}.{kind}"]
p = {k: v.clone().requires_grad_() for k, v in p.items()}


def lin(name, x):
    return torch.addmm(p[name + ".bias"], x, p[name + ".weight"].T)


def norm(name, x):
    x = x - x.mean(-1, keepdim=True)
    x = x * (x.square().mean(-1, keepdim=True) + 1e-12).rsqrt()
    return p[name + ".weight"] * x + p[name + ".bias"]


def layer(i, x, same):
    """x: (words, width); same[a, b]: both words stand in one sentence"""
    q, k, v = lin(f"{i}.qkv", x).view(-1, 3, 4, 6).permute(1, 2, 0, 3)
    att = F.scaled_dot_product_attention(q, k, v, attn_mask=same)  # <- neighbours
    out = lin(f"{i}.out", att.transpose(0, 1).reshape(len(x), -1))
    x = norm(f"{i}.ln1", x + out)  # <- postnorm
    wide = F.gelu(lin(f"{i}.up", x))
    return norm(f"{i}.ln2", x + lin(f"{i}.down", wide))


def loss_of(ids, real, types, chosen):
    row, col = real.nonzero(as_tuple=True)
    words = torch.where(chosen, 2, ids)[row, col]
    x = p["word"][words] + p["pos"][col]
    x = x + p["seg"][types[row, col]]  # <- segments
    x = norm("ln0", x)
    same = row[:, None] == row[None, :]  # <- neighbours
    for i in range(2):
        x = layer(i, x, same)
    x = x[chosen[row, col]]
    x = norm("ln9", F.gelu(lin("head", x)))
    z = x @ p["word"].T + p["bias"]  # <- tied
    right = z[torch.arange(len(z)), ids[chosen]]
    return (torch.logsumexp(z, 1) - right).mean()


class NAdam:
    def __init__(self, tensors, b1=0.9, b2=0.999, psi=0.01):  # <- decay
        self.tensors, self.b1, self.b2, self.psi = tensors, b1, b2, psi  # <- decay
        self.t, self.product = 0, 1.0
        self.m = [torch.zeros_like(x) for x in tensors]
        self.v = [torch.zeros_like(x) for x in tensors]

    @torch.no_grad()
    def apply(self, grads, lr):
        self.t += 1
        mu = self.b1 * (1 - 0.5 * 0.96 ** (self.t * self.psi))  # <- decay
        mu_next = self.b1 * (1 - 0.5 * 0.96 ** ((self.t + 1) * self.psi))  # <- decay
        self.product *= mu
        for x, g, m, v in zip(self.tensors, grads, self.m, self.v):
            m += (1 - self.b1) * (g - m)
            v += (1 - self.b2) * (g * g - v)
            root = (v / (1 - self.b2**self.t)).sqrt() + 1e-8
            ahead = mu_next * m / (1 - self.product * mu_next)
            x -= lr * ((1 - mu) * g / (1 - self.product) + ahead) / root


opt = NAdam(list(p.values()))
gen = torch.Generator().manual_seed(8)
losses = []
for step in range(4):
    ids = torch.randint(3, 47, (4, 11), generator=gen)
    real = torch.arange(11) < torch.randint(5, 12, (4, 1), generator=gen)
    types = (torch.arange(11) >= torch.randint(2, 5, (4, 1), generator=gen)).long()
    chosen = (torch.rand(4, 11, generator=gen) < 0.3) & real
    loss = loss_of(ids, real, types, chosen)
    opt.apply(torch.autograd.grad(loss, opt.tensors), 2e-3 * (1 - 0.2 * step))  # <- decay
    losses.append(loss.item())
print(losses)
