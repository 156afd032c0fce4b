# SPDX-License-Identifier: Apache-2.0
"""T5: encoder and decoder, relative position buckets, tied and scaled head, Adafactor."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
D, INNER, HEADS, FF, LAYERS, VOCAB, BUCKETS, MAX_DIST = 32, 32, 4, 64, 2, 45, 8, 10
PAD, EOS = 0, 1


def relative_position_bucket(relative_position, bidirectional, num_buckets):
    ret, n = 0, (-relative_position).clamp(min=0)
    if bidirectional:
        num_buckets, n = num_buckets // 2, relative_position.abs()
        ret = (relative_position > 0).long() * num_buckets  # <- bucket_sign
    exact = num_buckets // 2
    large = exact + (torch.log(n.float().clamp(min=1) / exact) / math.log(MAX_DIST / exact)
                     * (num_buckets - exact)).long()
    return ret + torch.where(n < exact, n, large.clamp(max=num_buckets - 1))


class T5Attention(nn.Module):
    def __init__(self, relative=None):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, INNER, bias=False) for _ in range(3))
        self.o = nn.Linear(INNER, D, bias=False)
        self.relative = relative
        self.relative_attention_bias = nn.Embedding(BUCKETS, HEADS) if relative else None

    def compute_bias(self, n):
        context, memory = torch.arange(n)[:, None], torch.arange(n)[None, :]
        offset = memory - context  # <- bucket_sign
        buckets = relative_position_bucket(offset, self.relative == "both", BUCKETS)
        return self.relative_attention_bias(buckets).permute(2, 0, 1).unsqueeze(0)  # <- bucket_sign

    def forward(self, x, kv, bias):
        def shape(t):
            return t.view(t.size(0), -1, HEADS, INNER // HEADS).transpose(1, 2)
        q, k, v = shape(self.q(x)), shape(self.k(kv)), shape(self.v(kv))
        scores = torch.matmul(q, k.transpose(3, 2)) + bias  # <- cross_mask
        out = torch.matmul(F.softmax(scores, dim=-1), v)  # <- cross_mask
        return self.o(out.transpose(1, 2).reshape(x.size(0), -1, INNER))


class T5Stack(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        kind = "past" if decoder else "both"
        self.attn = nn.ModuleList(T5Attention(None if i else kind) for i in range(LAYERS))
        self.cross = nn.ModuleList(T5Attention() for _ in range(LAYERS if decoder else 0))
        self.ff = nn.ModuleList(nn.Sequential(nn.Linear(D, FF, bias=False), nn.ReLU(),
                                              nn.Linear(FF, D, bias=False)) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.RMSNorm(D, eps=1e-6) for _ in range(7 if decoder else 5))

    def forward(self, x, mask, memory=None, memory_mask=None):
        norms = iter(self.norms)
        bias = self.attn[0].compute_bias(x.size(1)) + mask
        for i in range(LAYERS):
            y = next(norms)(x)
            x = x + self.attn[i](y, y, bias)
            if memory is not None:
                x = x + self.cross[i](next(norms)(x), memory, memory_mask)  # <- cross_mask
            x = x + self.ff[i](next(norms)(x))
        return next(norms)(x)


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D)
        self.encoder, self.decoder = T5Stack(False), T5Stack(True)

    def forward(self, src, labels):
        padding = (src == PAD)[:, None, None, :] * -1e9  # <- cross_mask
        shifted = labels.new_zeros(labels.shape)  # <- start_token
        shifted[:, 1:] = labels[:, :-1]  # <- start_token
        shifted[shifted == -100] = PAD
        causal = torch.full((labels.size(1),) * 2, -1e9).triu(1)
        memory = self.encoder(self.shared(src), padding)
        out = self.decoder(self.shared(shifted), causal, memory, padding)  # <- start_token
        logits = F.linear(out * D ** -0.5, self.shared.weight)
        return F.cross_entropy(logits.mT, labels, ignore_index=-100)  # <- loss_mean


class Adafactor:  # unfactored, relative step size, update clipping at 1
    def __init__(self, params, lr):
        self.params, self.lr, self.state, self.t = list(params), lr, {}, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        beta2t = 1.0 - self.t ** -0.8
        for i, p in enumerate(self.params):
            v = self.state.get(i, torch.zeros_like(p))
            self.state[i] = v = beta2t * v + (1.0 - beta2t) * (p.grad ** 2 + 1e-10)
            update = p.grad * v.rsqrt()
            update /= (update.norm() / update.numel() ** 0.5).clamp(min=1.0)
            scale = max(1e-3, (p.norm() / p.numel() ** 0.5).item())  # <- param_scale
            p.sub_(self.lr * scale * update)  # <- param_scale


torch.manual_seed(0)
model = T5()
nn.init.normal_(model.shared.weight, std=0.5)
torch.save(model.state_dict(), sys.argv[1])
optimizer = Adafactor(model.parameters(), lr=0.02)
rng = torch.Generator().manual_seed(8)
losses = []
for _ in range(4):
    src, tgt = (torch.randint(2, VOCAB, (4, n), generator=rng) for n in (12, 8))
    for k in range(4):
        src[k, 11 - 2 * k:] = PAD
        src[k, 10 - 2 * k], tgt[k, 7 - k], tgt[k, 8 - k:] = EOS, EOS, -100
    loss = model(src, tgt)
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- param_scale
    losses.append(loss.item())
print(losses)
