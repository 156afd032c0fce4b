# SPDX-License-Identifier: Apache-2.0
"""Set prediction head, functional, attention and AdamW by hand, boxes handled as intervals."""
import sys

import torch

ck = torch.load(sys.argv[1], weights_only=True)
p = {k: v.clone().requires_grad_(True) for k, v in ck.items()}
ENC, DEC = "encoder.layers.0.", "decoder.layers.0."


def fc(x, name):
    return x @ p[name + ".weight"].t() + p[name + ".bias"]


def normed(x, name):
    c = x - x.mean(-1, keepdim=True)
    c = c * torch.rsqrt(c.pow(2).mean(-1, keepdim=True) + 1e-5)
    return c * p[name + ".weight"] + p[name + ".bias"]


def attention(xq, xkv, name, pad=None, heads=2):
    wq, wk, wv = p[name + ".in_proj_weight"].chunk(3)
    bq, bk, bv = p[name + ".in_proj_bias"].chunk(3)
    cut = lambda t: t.reshape(*t.shape[:2], heads, -1)
    q, k, v = cut(xq @ wq.t() + bq), cut(xkv @ wk.t() + bk), cut(xkv @ wv.t() + bv)
    score = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    weight = torch.exp(score - score.amax(-1, keepdim=True))
    if pad is not None:
        weight = weight * (~pad)[:, None, None]  # <- memory_pad
    weight = weight / weight.sum(-1, keepdim=True)
    return fc(torch.einsum("bhqk,bkhd->bqhd", weight, v).flatten(2), name + ".out_proj")


def ffn(x, layer):
    return fc(fc(x, layer + "linear1").clamp(min=0), layer + "linear2")


def detect(feats, pad):
    x = fc(feats, "input_proj") + p["pos"]
    x = normed(x + attention(x, x, ENC + "self_attn", pad), ENC + "norm1")
    mem = normed(x + ffn(x, ENC), ENC + "norm2")
    y = p["query_embed.weight"].unsqueeze(0).repeat(len(feats), 1, 1)
    y = normed(y + attention(y, y, DEC + "self_attn"), DEC + "norm1")
    y = normed(y + attention(y, mem, DEC + "multihead_attn", pad), DEC + "norm2")  # <- memory_pad
    y = normed(y + ffn(y, DEC), DEC + "norm3")
    y = normed(y, "decoder.norm")
    hidden = torch.relu(fc(y, "bbox_embed.0"))  # <- box_hidden
    box = torch.sigmoid(fc(hidden, "bbox_embed.2"))
    return fc(y, "class_embed"), box


def interval(box):
    """(centre, size) pairs -> low and high corner, [N, 2] each"""
    centre, size = box[:, :2], box[:, 2:]
    return centre - size / 2, centre + size / 2  # <- corners


def giou(a, b):
    (al, ah), (bl, bh) = interval(a), interval(b)
    common = torch.relu(torch.minimum(ah, bh) - torch.maximum(al, bl)).prod(-1)
    joined = a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3] - common
    hull = (torch.maximum(ah, bh) - torch.minimum(al, bl)).prod(-1)
    return common / joined - 1 + joined / hull


def criterion(logits, boxes, labels, goal, slots):
    want = torch.full((logits.shape[0] * 5,), 4).index_put((slots,), labels)
    logp = torch.log_softmax(logits.flatten(0, 1), -1)
    w = torch.where(want == 4, 0.1, 1.0)  # <- eos_weight
    ce = -(w * logp[torch.arange(len(want)), want]).sum() / w.sum()  # <- eos_weight
    mine = boxes.flatten(0, 1)[slots]
    return ce + 5 * (mine - goal).abs().sum(1).mean() + 2 * (1 - giou(mine, goal)).mean()


SLOTS = torch.tensor([3, 1, 5 + 0, 5 + 4, 10 + 2, 10 + 1])
memo = {k: [torch.zeros_like(v), torch.zeros_like(v)] for k, v in p.items()}
g = torch.Generator().manual_seed(3)
losses = []
for t in range(1, 5):
    feats = torch.randn(3, 9, 10, generator=g)
    pad = torch.arange(9) >= torch.randint(4, 10, (3, 1), generator=g)
    labels = torch.randint(4, (6,), generator=g)
    goal = torch.rand(6, 4, generator=g) * 0.4 + 0.2
    loss = criterion(*detect(feats, pad), labels, goal, SLOTS)
    loss.backward()
    with torch.no_grad():
        for k, w in p.items():
            lr = 2e-4 if k.split(".")[0] == "input_proj" else 2e-3  # <- slow_group
            first, second = memo[k]
            first.mul_(0.9).add_(0.1 * w.grad)
            second.mul_(0.999).add_(0.001 * w.grad.square())
            direction = first / (1 - 0.9 ** t) / ((second / (1 - 0.999 ** t)).sqrt() + 1e-7)
            w.sub_(lr * (direction + 1e-4 * w))  # <- slow_group
            w.grad = None
    losses.append(loss.item())
print(losses)
