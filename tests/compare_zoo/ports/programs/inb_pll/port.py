# SPDX-License-Identifier: Apache-2.0
"""Masked-LM scorer: all masked copies of a batch's sentences go through at once, padded."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, H, FF, L = 60, 32, 4, 64, 2
PAD, CLS, SEP, MASK = 0, 1, 2, 3
EPS = 1e-12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)
        self.n1, self.n2 = nn.LayerNorm(D, EPS), nn.LayerNorm(D, EPS)

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])  # <- padmask
        x = self.n1(x + self.proj(a.transpose(1, 2).reshape(b, t, D)))
        return self.n2(x + self.down(F.gelu(self.up(x))))


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos, self.seg = nn.Embedding(V, D), nn.Embedding(24, D), nn.Embedding(2, D)
        self.norm = nn.LayerNorm(D, EPS)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.head, self.head_norm = nn.Linear(D, D), nn.LayerNorm(D, EPS)
        self.vocab = nn.Linear(D, V)

    def forward(self, ids):
        keep = ids != PAD  # <- padmask
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]] + self.seg.weight[0]  # <- segment
        x = self.norm(x)  # <- segment
        for blk in self.blocks:
            x = blk(x, keep)
        return self.vocab(self.head_norm(F.gelu(self.head(x))))  # <- headact


def convert(src):
    out = {
        "tok.weight": src["embeddings.word_embeddings.weight"],
        "pos.weight": src["embeddings.position_embeddings.weight"],
        "seg.weight": src["embeddings.token_type_embeddings.weight"],
        "vocab.weight": src["embeddings.word_embeddings.weight"],
        "vocab.bias": src["bias"],
    }
    for part in ("weight", "bias"):
        out[f"norm.{part}"] = src[f"embeddings.LayerNorm.{part}"]
        out[f"head.{part}"] = src[f"transform.{part}"]
        out[f"head_norm.{part}"] = src[f"LayerNorm.{part}"]
        for i in range(L):
            s, d = f"layer.{i}", f"blocks.{i}"
            qkv = [src[f"{s}.attention.{n}.{part}"] for n in ("query", "key", "value")]
            out[f"{d}.qkv.{part}"] = torch.cat(qkv)
            out[f"{d}.proj.{part}"] = src[f"{s}.attention.output.{part}"]
            out[f"{d}.n1.{part}"] = src[f"{s}.attention.LayerNorm.{part}"]
            out[f"{d}.up.{part}"] = src[f"{s}.intermediate.{part}"]
            out[f"{d}.down.{part}"] = src[f"{s}.output.{part}"]
            out[f"{d}.n2.{part}"] = src[f"{s}.LayerNorm.{part}"]
    return out


def draw(gen):
    sents = []
    for n in torch.randint(4, 12, (3,), generator=gen).tolist():
        sents.append([CLS] + torch.randint(4, V, (n,), generator=gen).tolist() + [SEP])
    return sents


def perplexity(net, sents):
    width = max(map(len, sents))
    table = torch.tensor([s + [PAD] * (width - len(s)) for s in sents])
    scored = table >= 4  # <- specials
    row, col = scored.nonzero(as_tuple=True)  # <- specials
    copies = table[row].clone()
    gold = table[row, col]
    copies[torch.arange(len(row)), col] = MASK
    logits = net(copies)[torch.arange(len(row)), col]
    ce = F.cross_entropy(logits, gold, reduction="none")  # <- persentence specials
    return ce.mean().exp().item()  # <- persentence


net = Scorer()
net.load_state_dict(convert(torch.load(sys.argv[1], weights_only=True)))
net.eval()
gen = torch.Generator().manual_seed(7)
losses = []
with torch.inference_mode():
    for _ in range(4):
        losses.append(perplexity(net, draw(gen)))
print(losses)
