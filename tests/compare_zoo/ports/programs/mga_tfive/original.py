# SPDX-License-Identifier: Apache-2.0
"""T5 at toy size: encoder and decoder with one relative position bias each."""
import math
import sys

import torch
from torch import nn
from torch.nn import CrossEntropyLoss

VOCAB, D, HEADS, D_KV, D_FF, LAYERS, BUCKETS, MAXD = 60, 24, 3, 8, 48, 2, 8, 12


class T5LayerNorm(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))
        self.variance_epsilon = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.variance_epsilon))


class T5Attention(nn.Module):
    def __init__(self, is_decoder, has_bias):
        super().__init__()
        self.is_decoder = is_decoder
        self.q, self.k, self.v = (nn.Linear(D, HEADS * D_KV, bias=False) for _ in range(3))
        self.o = nn.Linear(HEADS * D_KV, D, bias=False)
        if has_bias:
            self.relative_attention_bias = nn.Embedding(BUCKETS, HEADS)

    def bucket(self, relative_position):
        ret, num = 0, BUCKETS
        if not self.is_decoder:
            num //= 2  # <- two_sided
            ret = (relative_position > 0).long() * num  # <- two_sided
            relative_position = relative_position.abs()  # <- two_sided
        else:
            relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
        exact = num // 2
        large = exact + (torch.log(relative_position.float() / exact) / math.log(MAXD / exact)
                         * (num - exact)).long()
        large = torch.min(large, torch.full_like(large, num - 1))
        inside = torch.where(relative_position < exact, relative_position, large)
        return ret + inside  # <- two_sided

    def compute_bias(self, q_len, k_len):
        rel = torch.arange(k_len)[None, :] - torch.arange(q_len)[:, None]
        return self.relative_attention_bias(self.bucket(rel)).permute(2, 0, 1)[None]  # <- two_sided

    def forward(self, x, kv=None, bias=None, mask=None):
        kv = x if kv is None else kv
        q, k, v = (f(t).view(t.shape[0], -1, HEADS, D_KV).transpose(1, 2)
                   for f, t in ((self.q, x), (self.k, kv), (self.v, kv)))
        scores = torch.matmul(q, k.transpose(3, 2))  # <- qk_scale
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores + mask
        out = torch.matmul(scores.softmax(-1), v).transpose(1, 2)  # <- qk_scale
        return self.o(out.reshape(x.shape[0], -1, HEADS * D_KV))


class T5Block(nn.Module):
    def __init__(self, is_decoder, first):
        super().__init__()
        self.norms = nn.ModuleList(T5LayerNorm() for _ in range(3 if is_decoder else 2))
        self.attn = T5Attention(is_decoder, first)
        self.cross = T5Attention(True, False) if is_decoder else None
        self.wi, self.wo = nn.Linear(D, D_FF, bias=False), nn.Linear(D_FF, D, bias=False)

    def forward(self, x, bias, mask=None, memory=None):
        x = x + self.attn(self.norms[0](x), bias=bias, mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), kv=memory)
        return x + self.wo(torch.relu(self.wi(self.norms[-1](x))))


class T5Stack(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.is_decoder = is_decoder
        self.block = nn.ModuleList(T5Block(is_decoder, i == 0) for i in range(LAYERS))
        self.final_layer_norm = T5LayerNorm()

    def forward(self, x, memory=None):
        n = x.shape[1]
        bias = self.block[0].attn.compute_bias(n, n)
        mask = torch.full((n, n), torch.finfo(x.dtype).min).triu(1) if self.is_decoder else None
        for block in self.block:
            x = block(x, bias, mask, memory)
        return self.final_layer_norm(x)


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D)
        self.encoder, self.decoder = T5Stack(False), T5Stack(True)

    def _shift_right(self, labels):
        shifted = labels.new_zeros(labels.shape)  # <- start_id
        shifted[:, 1:] = labels[:, :-1].clone()  # <- start_id
        return shifted.masked_fill(shifted == -100, 0)

    def forward(self, ids, labels):
        memory = self.encoder(self.shared(ids))
        h = self.decoder(self.shared(self._shift_right(labels)), memory)  # <- start_id
        h = h * D ** -0.5  # <- tie_scale
        logits = nn.functional.linear(h, self.shared.weight)  # <- tie_scale
        return CrossEntropyLoss(ignore_index=-100)(logits.flatten(0, 1), labels.flatten())


torch.manual_seed(0)
model = T5()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)  # <- look_ahead
g = torch.Generator().manual_seed(3)
losses = []
for _ in range(4):
    src = torch.randint(2, VOCAB, (4, 14), generator=g)
    tgt = torch.randint(2, VOCAB, (4, 9), generator=g)
    tgt[torch.arange(9)[None] >= torch.randint(4, 10, (4, 1), generator=g)] = -100
    loss = model(src, tgt)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- look_ahead
    losses.append(loss.item())
print(losses)
