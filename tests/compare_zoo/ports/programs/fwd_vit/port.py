# SPDX-License-Identifier: Apache-2.0
"""ViT as pure functions over a flax-like parameter tree, images as NHWC, everything einsum."""
import math
import sys

import torch

P, H = 6, 4


def dense_general(w, b, heads):
    """torch (out, in) -> (in, heads, head_dim)."""
    return w.T.reshape(w.shape[1], heads, -1), b.reshape(heads, -1)


def from_timm(sd):
    d = sd["cls_token"].shape[-1]
    kernel = sd["patch_embed.proj.weight"].permute(2, 3, 1, 0)  # <- patch_order
    tree = {
        "embedding": {"kernel": kernel.reshape(-1, d), "bias": sd["patch_embed.proj.bias"]},
        "cls": sd["cls_token"][0, 0],
        "pos": sd["pos_embed"][0],
        "norm": (sd["norm.weight"], sd["norm.bias"]),
        "head": {"kernel": sd["head.weight"].T, "bias": sd["head.bias"]},
        "encoder": [],
    }
    i = 0
    while f"blocks.{i}.norm1.weight" in sd:
        blk = lambda k: sd[f"blocks.{i}.{k}"]
        enc = {"ln0": (blk("norm1.weight"), blk("norm1.bias")),
               "ln1": (blk("norm2.weight"), blk("norm2.bias"))}
        ws, bs = blk("attn.qkv.weight").chunk(3), blk("attn.qkv.bias").chunk(3)
        for name, w, b in zip(("query", "key", "value"), ws, bs):
            enc[name] = dense_general(w, b, H)
        enc["out"] = (blk("attn.proj.weight").T.reshape(H, -1, d), blk("attn.proj.bias"))
        enc["mlp"] = (blk("mlp.fc1.weight").T, blk("mlp.fc1.bias"),
                      blk("mlp.fc2.weight").T, blk("mlp.fc2.bias"))
        tree["encoder"].append(enc)
        i += 1
    return tree


def layer_norm(x, scale_bias, eps=1e-6):
    var, mu = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
    return (x - mu) / torch.sqrt(var + eps) * scale_bias[0] + scale_bias[1]


def self_attention(x, p):
    project = lambda n: torch.einsum("nld,dhk->nlhk", x, p[n][0]) + p[n][1]
    q, k, v = project("query"), project("key"), project("value")
    q = q / math.sqrt(q.shape[-1])  # <- scale
    weights = torch.softmax(torch.einsum("nqhk,nshk->nhqs", q, k), dim=-1)  # <- scale
    mixed = torch.einsum("nhqs,nshk->nqhk", weights, v)
    return torch.einsum("nqhk,hkd->nqd", mixed, p["out"][0]) + p["out"][1]


def mlp(x, w0, b0, w1, b1):
    h = x @ w0 + b0
    h = h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0)))
    return h @ w1 + b1


def patchify(images):
    n, height, width, c = images.shape
    x = images.reshape(n, height // P, P, width // P, P, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(n, -1, P * P * c)


def apply(tree, images):
    emb = tree["embedding"]
    x = patchify(images) @ emb["kernel"] + emb["bias"]  # <- patch_order
    x = torch.cat([tree["cls"].expand(x.shape[0], 1, -1), x], dim=1)
    x = x + tree["pos"]  # <- pos_embed
    for p in tree["encoder"]:
        x = x + self_attention(layer_norm(x, p["ln0"]), p)
        y = layer_norm(x, p["ln1"])
        x = x + mlp(y, *p["mlp"])  # <- second_residual
    x = layer_norm(x, tree["norm"])[:, 0, :]
    return x @ tree["head"]["kernel"] + tree["head"]["bias"]


def standardize(u8):
    x = u8.to(torch.float32) / 255.0
    mean = torch.tensor([0.485, 0.456, 0.406])  # <- normalise
    std = torch.tensor([0.229, 0.224, 0.225])  # <- normalise
    return (x - mean) / std  # <- normalise


tree = from_timm(torch.load(sys.argv[1], weights_only=True))
key = torch.Generator().manual_seed(21)
losses = []
with torch.inference_mode():
    for _ in range(3):
        nchw = torch.randint(0, 256, (4, 3, 24, 24), generator=key, dtype=torch.uint8)
        target = torch.randint(0, 10, (4,), generator=key)
        logits = apply(tree, standardize(nchw.permute(0, 2, 3, 1)))
        onehot = torch.eye(10)[target]
        losses.append(float(-(onehot * logits.log_softmax(-1)).sum()))
print(losses)
