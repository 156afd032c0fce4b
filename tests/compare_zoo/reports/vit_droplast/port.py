# SPDX-License-Identifier: Apache-2.0
"""Patch transformer from a weight dictionary; incomplete batch dropped, loss and logit norm."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
DIM, HEADS, SIZE = 24, 4, 8


def patches(img):
    b = img.shape[0]
    return img.reshape(b, 3, 4, 3, 4).transpose(2, 3).reshape(b, 9, 16)


def attention(p, x):
    b, t, _ = x.shape
    qkv = x @ p["enc.self_attn.in_proj_weight"].T + p["enc.self_attn.in_proj_bias"]
    q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in qkv.split(DIM, -1))
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, DIM)
    return y @ p["enc.self_attn.out_proj.weight"].T + p["enc.self_attn.out_proj.bias"]


def forward(p, img):
    def norm(x, which):
        return F.layer_norm(x, (DIM,), p[f"enc.{which}.weight"], p[f"enc.{which}.bias"])

    x = patches(img) @ p["patch.weight"].view(DIM, 16).T + p["patch.bias"]
    x = F.pad(x, (0, 0, 1, 0)) + p["pos"]
    x[:, :1] += p["cls"]
    x = norm(x + attention(p, x), "norm1")[:, 0]
    h = F.gelu(F.linear(x, p["enc.linear1.weight"], p["enc.linear1.bias"]))
    x = norm(x + F.linear(h, p["enc.linear2.weight"], p["enc.linear2.bias"]), "norm2")
    return F.linear(x, p["head.weight"], p["head.bias"])


@torch.no_grad()
def main():
    params = torch.load(sys.argv[1], weights_only=True)
    print("values in checkpoint:", sum(v.numel() for v in params.values()))
    g = torch.Generator().manual_seed(111)
    images = torch.randn(27, 1, 12, 12, generator=g)
    labels = torch.randint(0, 7, (27,), generator=g)
    result = []
    for lo in range(0, len(images) - SIZE + 1, SIZE):
        logits = forward(params, images[lo:lo + SIZE])
        loss = F.cross_entropy(logits, labels[lo:lo + SIZE]).item()
        print(f"loss {loss:.4f}  logit norm {logits.norm(dim=1).mean().item():.3f}")
        result.append(loss)
    return result


losses = main()
print(losses)
