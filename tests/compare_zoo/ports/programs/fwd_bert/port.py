# SPDX-License-Identifier: Apache-2.0
"""Sentence encoder built on nn.MultiheadAttention; weights come from a BERT state dict."""
import sys

import torch
from torch import nn
from torch.nn import functional as F


class EncoderBlock(nn.Module):
    def __init__(self, d, h, eps):
        super().__init__()
        self.mha = nn.MultiheadAttention(d, h, batch_first=True)
        self.norm_a, self.norm_b = nn.LayerNorm(d, eps=eps), nn.LayerNorm(d, eps=eps)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x, padding):
        a = self.mha(x, x, x, key_padding_mask=padding, need_weights=False)  # <- pad_keys in_proj
        x = self.norm_a(x + a[0])
        return self.norm_b(x + self.ff(x))


class SentenceEncoder(nn.Module):
    def __init__(self, vocab, max_len, d=48, h=4, depth=2, eps=1e-12):  # <- norm_eps
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(max_len, d)
        self.seg = nn.Parameter(torch.zeros(2, d))
        self.norm = nn.LayerNorm(d, eps=eps)  # <- norm_eps
        self.blocks = nn.ModuleList(EncoderBlock(d, h, eps) for _ in range(depth))

    def forward(self, ids, valid, second):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        x = x + torch.where(second[..., None], self.seg[1], self.seg[0])  # <- segments
        x = self.norm(x)  # <- norm_eps segments
        for blk in self.blocks:
            x = blk(x, ~valid)  # <- pad_keys
        x = x.masked_fill(~valid[..., None], 0.0)  # <- mean_pool
        return x.sum(dim=1) / valid.sum(dim=1, keepdim=True)  # <- mean_pool


def load_bert(path):
    src = torch.load(path, weights_only=True)
    net = SentenceEncoder(*(src[f"embeddings.{n}_embeddings.weight"].shape[0]
                            for n in ("word", "position")))
    dst = {"tok.weight": src["embeddings.word_embeddings.weight"],
           "pos.weight": src["embeddings.position_embeddings.weight"],
           "seg": src["embeddings.token_type_embeddings.weight"]}
    order = ("query", "key", "value")  # <- in_proj
    renames = {"mha.out_proj": "attn_dense", "norm_a": "attn_norm", "norm_b": "output_norm",
               "ff.0": "intermediate", "ff.2": "output"}
    for kind in ("weight", "bias"):
        dst[f"norm.{kind}"] = src[f"embeddings.LayerNorm.{kind}"]
        for i in range(len(net.blocks)):
            parts = [src[f"layer.{i}.self.{p}.{kind}"] for p in order]  # <- in_proj
            dst[f"blocks.{i}.mha.in_proj_{kind}"] = torch.cat(parts)  # <- in_proj
            for new, old in renames.items():
                dst[f"blocks.{i}.{new}.{kind}"] = src[f"layer.{i}.{old}.{kind}"]
    net.load_state_dict(dst, strict=True)
    return net.eval()


def batches(vocab, d, count):
    gen = torch.Generator().manual_seed(5)
    yield torch.randn(d, generator=gen)
    for _ in range(count):
        ids = torch.randint(1, vocab, (4, 18), generator=gen)
        lengths = torch.randint(6, 19, (4,), generator=gen).unsqueeze(1)
        steps = torch.arange(18).expand(4, 18)
        valid = steps < lengths
        yield torch.where(valid, ids, 0), valid, valid & (steps >= lengths // 2)


net = load_bert(sys.argv[1])
stream = batches(net.tok.num_embeddings, net.tok.embedding_dim, 4)
unit = F.normalize(next(stream), dim=0)
losses = []
with torch.inference_mode():
    for batch in stream:
        emb = net(*batch)
        cos = F.normalize(emb, dim=-1) @ unit
        losses.append(1.0 - cos.mean().item() + emb.abs().max().item())
print(losses)
