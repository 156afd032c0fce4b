# SPDX-License-Identifier: Apache-2.0
"""The T5 whose biases and masks are made once and added by torch's fused attention."""

import math
import sys

import numpy as np
import torch
from torch import nn

VOCAB, D_MODEL, D_KV, N_HEADS, D_FF, LAYERS, BUCKETS, DISTANCE = 32, 16, 6, 3, 40, 2, 8, 16


class T5LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D_MODEL))

    def forward(self, hidden_states):
        return nn.functional.rms_norm(hidden_states, (D_MODEL,), self.weight, 1e-6)  # <- mean


class T5Attention(nn.Module):
    def __init__(self, bidirectional, has_bias):
        super().__init__()
        inner = N_HEADS * D_KV
        self.q = nn.Linear(D_MODEL, inner, bias=False)
        self.k = nn.Linear(D_MODEL, inner, bias=False)
        self.v = nn.Linear(D_MODEL, inner, bias=False)
        self.o = nn.Linear(inner, D_MODEL, bias=False)
        self.bidirectional = bidirectional
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, N_HEADS)

    def bucket(self, relative_position):
        buckets, num = 0, BUCKETS
        if self.bidirectional:
            num //= 2
            buckets = (relative_position > 0).to(torch.long) * num  # <- sides
            relative_position = torch.abs(relative_position)  # <- sides
        else:
            relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
        exact = num // 2
        large = torch.log(relative_position.float() / exact) / math.log(
            DISTANCE / exact
        )  # <- distance
        large = exact + (large * (num - exact)).to(torch.long)  # <- distance
        large = torch.min(large, torch.full_like(large, num - 1))  # <- distance
        return buckets + torch.where(
            relative_position < exact, relative_position, large
        )  # <- distance sides

    def compute_bias(self, query_length, key_length):
        context_position = torch.arange(query_length)[:, None]
        memory_position = torch.arange(key_length)[None, :]
        buckets = self.bucket(memory_position - context_position)
        return (
            self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)
        )  # <- sides distance

    def forward(self, hidden_states, states, bias):
        def shape(x):
            return x.view(x.size(0), -1, N_HEADS, D_KV).transpose(1, 2)

        q = shape(self.q(hidden_states))
        k, v = shape(self.k(states)), shape(self.v(states))
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, bias, scale=1.0
        )  # <- scale shared
        context = mixed.transpose(1, 2).contiguous()
        return self.o(context.view(context.size(0), -1, N_HEADS * D_KV))


class T5Block(nn.Module):
    def __init__(self, decoder, first):
        super().__init__()
        self.attention, self.norm = T5Attention(not decoder, first), T5LayerNorm()
        if decoder:
            self.cross, self.cross_norm = T5Attention(True, has_bias=False), T5LayerNorm()
        self.decoder = decoder
        self.wi_0 = nn.Linear(D_MODEL, D_FF, bias=False)
        self.wi_1 = nn.Linear(D_MODEL, D_FF, bias=False)
        self.wo = nn.Linear(D_FF, D_MODEL, bias=False)
        self.ff_norm = T5LayerNorm()

    def forward(self, x, bias, memory):
        normed = self.norm(x)
        x = x + self.attention(normed, normed, bias)
        if self.decoder:
            x = x + self.cross(self.cross_norm(x), memory, None)  # <- memory
        normed = self.ff_norm(x)
        gated = nn.functional.gelu(self.wi_0(normed), approximate="tanh") * self.wi_1(normed)
        return x + self.wo(gated)


class T5Stack(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        self.block = nn.ModuleList([T5Block(decoder, i == 0) for i in range(LAYERS)])
        self.final_layer_norm = T5LayerNorm()
        self.decoder = decoder

    def forward(self, x, memory=None):
        length = x.size(1)
        bias = self.block[0].attention.compute_bias(length, length)
        if self.decoder:
            future = torch.ones(length, length).triu(1).bool()
            bias = bias.masked_fill(future, torch.finfo(x.dtype).min)
        for block in self.block:
            x = block(x, bias, memory)
        return self.final_layer_norm(x)  # <- memory


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D_MODEL)
        self.encoder, self.decoder = T5Stack(decoder=False), T5Stack(decoder=True)

    def forward(self, ids, labels):
        shifted = labels.new_zeros(labels.shape)
        shifted[:, 1:] = labels[:, :-1].clone()
        memory = self.encoder(self.shared(ids))  # <- memory
        out = self.decoder(self.shared(shifted), memory)
        logits = (out * D_MODEL**-0.5) @ self.shared.weight.t()  # <- output
        return nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))


model = T5()
model.load_state_dict(torch.load(sys.argv[1]))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
rng = np.random.default_rng(9)
losses = []
for _ in range(2):
    source = torch.from_numpy(rng.integers(1, VOCAB, (3, 12)))
    target = torch.from_numpy(rng.integers(1, VOCAB, (3, 8)))
    loss = model(source, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
