# SPDX-License-Identifier: Apache-2.0
"""A small T5-like encoder-decoder with relative position bias, trained by torch's Adafactor."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
PAD, VOCAB, D_MODEL, D_KV, HEADS, D_FF = 0, 53, 32, 8, 4, 48
BUCKETS, MAX_DISTANCE = 8, 12


class T5LayerNorm(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D_MODEL))
        self.eps = eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def relative_position_bucket(relative_position, bidirectional):
    buckets, num_buckets = 0, BUCKETS
    if bidirectional:
        num_buckets //= 2
        buckets = buckets + (relative_position > 0).long() * num_buckets
        relative_position = relative_position.abs()
    else:
        relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))  # <- bias_bidirectional
    max_exact = num_buckets // 2
    large = max_exact + (
        torch.log(relative_position.float().clamp(min=1) / max_exact)
        / math.log(MAX_DISTANCE / max_exact) * (num_buckets - max_exact)
    ).long()
    large = large.clamp(max=num_buckets - 1)
    return buckets + torch.where(relative_position < max_exact, relative_position, large)


class T5Attention(nn.Module):
    def __init__(self, is_decoder=False, has_bias=False):
        super().__init__()
        self.is_decoder = is_decoder
        self.q = nn.Linear(D_MODEL, HEADS * D_KV, bias=False)
        self.k = nn.Linear(D_MODEL, HEADS * D_KV, bias=False)
        self.v = nn.Linear(D_MODEL, HEADS * D_KV, bias=False)
        self.o = nn.Linear(HEADS * D_KV, D_MODEL, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, HEADS)

    def compute_bias(self, length):
        pos = torch.arange(length)
        rel = pos[None, :] - pos[:, None]
        buckets = relative_position_bucket(rel, bidirectional=not self.is_decoder)  # <- bias_bidirectional
        return self.relative_attention_bias(buckets).permute(2, 0, 1)[None]

    def forward(self, x, memory, bias):
        b = x.size(0)
        q, k, v = (m(z).view(b, -1, HEADS, D_KV).transpose(1, 2)
                   for m, z in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = torch.matmul(q, k.transpose(3, 2))  # <- attn_scale
        attn = torch.softmax(scores + bias, dim=-1)  # <- attn_scale
        return self.o((attn @ v).transpose(1, 2).reshape(b, -1, HEADS * D_KV))


class T5Block(nn.Module):
    def __init__(self, is_decoder, has_bias):
        super().__init__()
        self.self_attn, self.ln1 = T5Attention(is_decoder, has_bias), T5LayerNorm()
        if is_decoder:
            self.cross_attn, self.ln_cross = T5Attention(True), T5LayerNorm()
        self.wi, self.wo = nn.Linear(D_MODEL, D_FF, bias=False), nn.Linear(D_FF, D_MODEL, bias=False)
        self.ln2 = T5LayerNorm()

    def forward(self, x, bias, memory=None, memory_bias=None):
        normed = self.ln1(x)
        x = x + self.self_attn(normed, normed, bias)
        if memory is not None:
            x = x + self.cross_attn(self.ln_cross(x), memory, memory_bias)
        return x + self.wo(torch.relu(self.wi(self.ln2(x))))


class T5Stack(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.is_decoder = is_decoder
        self.block = nn.ModuleList(T5Block(is_decoder, i == 0) for i in range(2))
        self.final_layer_norm = T5LayerNorm()

    def forward(self, x, mask, memory=None, memory_mask=None):
        bias = self.block[0].self_attn.compute_bias(x.size(1)) + mask
        for block in self.block:
            x = block(x, bias, memory, memory_mask)
        return self.final_layer_norm(x)


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D_MODEL)
        self.encoder, self.decoder = T5Stack(False), T5Stack(True)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=1.0 if "shared" in name else 0.25)

    def forward(self, input_ids, labels):
        start = torch.full_like(labels[:, :1], PAD)
        decoder_ids = torch.cat([start, labels[:, :-1]], dim=1)
        decoder_ids = decoder_ids.masked_fill(decoder_ids == -100, PAD)
        enc_mask = (input_ids == PAD)[:, None, None, :] * -1e9
        t = decoder_ids.size(1)
        causal = torch.full((t, t), -1e9).triu(1)[None, None]
        memory = self.encoder(self.shared(input_ids), enc_mask)
        hidden = self.decoder(self.shared(decoder_ids), causal, memory, enc_mask)
        logits = (hidden * D_MODEL**-0.5) @ self.shared.weight.T  # <- head_scale
        return nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), ignore_index=-100)  # <- pad_in_loss


def make_batch(generator):
    src = torch.randint(2, VOCAB, (4, 10), generator=generator)
    tgt = torch.randint(2, VOCAB, (4, 8), generator=generator)
    for row, (s, t) in enumerate([(10, 8), (7, 5), (9, 6), (4, 7)]):
        src[row, s:] = PAD
        tgt[row, t:] = -100  # <- pad_in_loss
    return src, tgt


torch.manual_seed(3)
model = T5()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adafactor(model.parameters(), lr=2e-2)  # <- param_scale
generator = torch.Generator().manual_seed(17)
losses = []
for _ in range(5):
    src, tgt = make_batch(generator)
    optimizer.zero_grad()
    loss = model(src, tgt)
    loss.backward()
    optimizer.step()  # <- param_scale
    losses.append(loss.item())
print(losses)
