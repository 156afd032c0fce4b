# SPDX-License-Identifier: Apache-2.0
"""T5-like encoder-decoder (relative position biases, no score scaling), teacher-forced losses."""
import math
import sys

import torch
from torch import nn

D, KV, H, FF, VOCAB, BUCKETS, MAX_DIST, PAD = 32, 8, 4, 64, 70, 8, 20, 0


class T5LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(D) + 0.5)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class T5Attention(nn.Module):
    def __init__(self, is_decoder, has_bias):
        super().__init__()
        self.is_decoder = is_decoder
        for n in "qkv":
            setattr(self, n, nn.Linear(D, H * KV, bias=False))
        self.o = nn.Linear(H * KV, D, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, H)

    def compute_bias(self, length):
        rel = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        num, buckets = BUCKETS, torch.zeros_like(rel)
        if not self.is_decoder:
            num //= 2
            buckets += (rel > 0).long() * num
            rel = rel.abs()
        else:
            rel = -torch.min(rel, torch.zeros_like(rel))  # <- direction
        max_exact = num // 2
        large = torch.log(rel.clamp(min=1).float() / max_exact) / math.log(MAX_DIST / max_exact)
        large = (max_exact + (large * (num - max_exact)).long()).clamp(max=num - 1)
        buckets += torch.where(rel < max_exact, rel, large)  # <- direction
        return self.relative_attention_bias(buckets).permute(2, 0, 1)[None]  # <- direction

    def forward(self, x, position_bias, kv=None):
        kv = x if kv is None else kv
        q, k, v = (m(t).unflatten(-1, (H, KV)).transpose(1, 2)
                   for m, t in ((self.q, x), (self.k, kv), (self.v, kv)))
        scores = torch.matmul(q, k.transpose(3, 2))  # <- scaling
        scores = scores + position_bias  # <- scaling direction
        weights = nn.functional.softmax(scores, dim=-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class T5Block(nn.Module):
    def __init__(self, is_decoder, first):
        super().__init__()
        self.SelfAttention, self.norm = T5Attention(is_decoder, first), T5LayerNorm()
        if is_decoder:
            self.EncDecAttention, self.cross_norm = T5Attention(True, False), T5LayerNorm()
        self.wi_0, self.wi_1 = nn.Linear(D, FF, bias=False), nn.Linear(D, FF, bias=False)
        self.wo, self.ff_norm = nn.Linear(FF, D, bias=False), T5LayerNorm()
        self.act = nn.GELU(approximate="tanh")

    def forward(self, x, bias, memory=None, memory_bias=None):
        x = x + self.SelfAttention(self.norm(x), bias)
        if memory is not None:
            x = x + self.EncDecAttention(self.cross_norm(x), memory_bias, memory)
        h = self.ff_norm(x)
        return x + self.wo(self.act(self.wi_0(h)) * self.wi_1(h))  # <- wi_order


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D)
        self.encoder = nn.ModuleList(T5Block(False, i == 0) for i in range(2))
        self.decoder = nn.ModuleList(T5Block(True, i == 0) for i in range(2))
        self.enc_norm, self.dec_norm = T5LayerNorm(), T5LayerNorm()

    def forward(self, ids, labels):
        pad = torch.zeros(ids.shape).masked_fill(ids == PAD, -1e9)[:, None, None, :]
        bias = self.encoder[0].SelfAttention.compute_bias(ids.size(1)) + pad
        x = self.shared(ids)
        for block in self.encoder:
            x = block(x, bias)
        memory = self.enc_norm(x)
        decoder_ids = labels.new_zeros(labels.shape)
        decoder_ids[:, 1:] = labels[:, :-1].clone()  # <- shift
        t = labels.size(1)
        bias = self.decoder[0].SelfAttention.compute_bias(t)  # <- direction
        bias = bias + torch.full((t, t), -1e9).triu(1)
        y = self.shared(decoder_ids)  # <- shift
        for block in self.decoder:
            y = block(y, bias, memory, pad)
        y = self.dec_norm(y) * D ** -0.5  # <- head_scale
        return y @ self.shared.weight.T  # <- head_scale


torch.manual_seed(0)
model = T5().eval()
for name, p in model.named_parameters():
    if p.ndim == 2:
        nn.init.normal_(p, std=0.9 if "shared" in name or "relative" in name else 0.17)
gen = torch.Generator().manual_seed(9)
src = torch.randint(1, VOCAB, (3, 4, 13), generator=gen)
src[:, 1, 9:], src[:, 3, 6:] = PAD, PAD
tgt = torch.randint(1, VOCAB, (3, 4, 11), generator=gen)
torch.save({"model": model.state_dict(), "src": src, "tgt": tgt}, sys.argv[1])
losses = []
with torch.no_grad():
    for ids, labels in zip(src, tgt):
        logits = model(ids, labels)
        losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item())
print(losses)
