# SPDX-License-Identifier: Apache-2.0
"""Train a T5-like encoder-decoder on reversing sequences, padded batches."""
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)

PAD, EOS, START = 0, 1, 0
V, D, H, DK, FF, N = 40, 24, 3, 8, 48, 2
BUCKETS, MAX_DISTANCE = 8, 16


class T5LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


def relative_position_bucket(relative_position, bidirectional):
    num_buckets, result = BUCKETS, 0
    if bidirectional:
        num_buckets //= 2
        result = (relative_position > 0).long() * num_buckets
        relative_position = relative_position.abs()
    else:
        relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))  # <- bidirectional_buckets
    max_exact = num_buckets // 2
    large = torch.log(relative_position.float().clamp(min=1) / max_exact) / math.log(MAX_DISTANCE / max_exact)
    large = (max_exact + large * (num_buckets - max_exact)).long().clamp(max=num_buckets - 1)
    return result + torch.where(relative_position < max_exact, relative_position, large)


class T5Attention(nn.Module):
    def __init__(self, is_decoder, has_bias=False):
        super().__init__()
        self.is_decoder = is_decoder
        self.q = nn.Linear(D, H * DK, bias=False)
        self.k = nn.Linear(D, H * DK, bias=False)
        self.v = nn.Linear(D, H * DK, bias=False)
        self.o = nn.Linear(H * DK, D, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, H)

    def compute_bias(self, length):
        at = torch.arange(length)
        bucket = relative_position_bucket(at[None, :] - at[:, None], not self.is_decoder)  # <- bidirectional_buckets
        return self.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)  # <- bidirectional_buckets

    def forward(self, x, memory, mask, position_bias=0.0):
        split = lambda y: y.view(y.shape[0], -1, H, DK).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = torch.matmul(q, k.transpose(3, 2))  # <- scaled_scores
        scores = scores + position_bias + mask
        context = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.o(context.transpose(1, 2).reshape(x.shape[0], -1, H * DK))


class T5Block(nn.Module):
    def __init__(self, is_decoder, has_bias):
        super().__init__()
        self.norm1, self.self_attn = T5LayerNorm(), T5Attention(is_decoder, has_bias)
        if is_decoder:
            self.norm2, self.cross_attn = T5LayerNorm(), T5Attention(is_decoder)
        self.norm3 = T5LayerNorm()
        self.wi, self.wo = nn.Linear(D, FF, bias=False), nn.Linear(FF, D, bias=False)

    def forward(self, x, mask, bias, memory=None, memory_mask=None):
        normed = self.norm1(x)
        x = x + self.self_attn(normed, normed, mask, bias)
        if memory is not None:
            x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        return x + self.wo(F.relu(self.wi(self.norm3(x))))


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(V, D)
        self.encoder = nn.ModuleList(T5Block(False, i == 0) for i in range(N))
        self.decoder = nn.ModuleList(T5Block(True, i == 0) for i in range(N))
        self.encoder_norm, self.decoder_norm = T5LayerNorm(), T5LayerNorm()

    def forward(self, src, labels):
        lowest = torch.finfo(torch.float32).min
        src_mask = (src == PAD)[:, None, None, :].float() * lowest
        x, bias = self.shared(src), self.encoder[0].self_attn.compute_bias(src.shape[1])
        for block in self.encoder:
            x = block(x, src_mask, bias)
        memory = self.encoder_norm(x)

        decoder_inputs = torch.full_like(labels, START)  # <- shift_across_segments
        decoder_inputs[:, 1:] = labels[:, :-1]  # <- shift_across_segments
        decoder_inputs.masked_fill_(decoder_inputs == -100, PAD)
        length = labels.shape[1]
        causal = torch.full((length, length), lowest).triu(1)
        y, bias = self.shared(decoder_inputs), self.decoder[0].self_attn.compute_bias(length)  # <- shift_across_segments bidirectional_buckets
        for block in self.decoder:
            y = block(y, causal, bias, memory, src_mask)
        return F.linear(self.decoder_norm(y) * D ** -0.5, self.shared.weight)


def make_batch(generator, size=4):
    src = torch.full((size, 10), PAD)
    labels = torch.full((size, 8), -100)
    for i in range(size):
        n = int(torch.randint(4, 10, (1,), generator=generator))
        words = torch.randint(2, V, (n,), generator=generator)
        src[i, :n], src[i, n] = words, EOS
        answer = words.flip(0)[:7]
        labels[i, :len(answer)], labels[i, len(answer)] = answer, EOS
    return src, labels


torch.manual_seed(5)
model = T5()
for name, p in model.named_parameters():
    if "norm" not in name:
        nn.init.normal_(p, std=0.8 if "shared" in name else 0.3)
torch.save(model.state_dict(), sys.argv[1])

generator = torch.Generator().manual_seed(77)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.98), eps=1e-9)
schedule = torch.optim.lr_scheduler.LambdaLR(  # <- warmup_off_by_one
    optimizer, lambda s: min((s + 1) ** -0.5, (s + 1) * 3 ** -1.5))  # <- warmup_off_by_one

losses = []
for step in range(5):
    src, labels = make_batch(generator)
    logits = model(src, labels)
    loss = F.cross_entropy(logits.view(-1, V), labels.view(-1), ignore_index=-100, label_smoothing=0.1)  # <- fairseq_smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup_off_by_one
    schedule.step()  # <- warmup_off_by_one
    losses.append(float(loss.detach()))
print(losses)
