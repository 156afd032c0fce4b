# SPDX-License-Identifier: Apache-2.0
"""A T5-like encoder-decoder with relative position bias, trained with Adafactor (factored second moments)."""
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, DIM, HEADS, KV = 32, 24, 3, 8


class T5LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class T5Attention(nn.Module):
    def __init__(self, relative=False, bidirectional=True):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, HEADS * KV, bias=False) for _ in range(3))
        self.o = nn.Linear(HEADS * KV, DIM, bias=False)
        self.bidirectional = bidirectional
        if relative:
            self.relative_attention_bias = nn.Embedding(8, HEADS)

    def compute_bias(self, n):
        rel = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        if self.bidirectional:
            bucket = (rel > 0).long() * 4 + rel.abs().clamp(max=3)
        else:
            bucket = (-rel).clamp(min=0, max=7)
        return self.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x, kv=None, bias=None):
        kv = x if kv is None else kv
        split = lambda t: t.view(t.size(0), -1, HEADS, KV).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(kv)), split(self.v(kv))
        scores = q @ k.transpose(3, 2)
        if bias is not None:
            scores = scores + bias
        out = (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.size(0), -1, HEADS * KV)
        return self.o(out)


class T5Block(nn.Module):
    def __init__(self, decoder, relative):
        super().__init__()
        self.ln_self, self.ln_ff = T5LayerNorm(), T5LayerNorm()
        self.self_attn = T5Attention(relative, not decoder)
        if decoder:
            self.ln_cross, self.cross_attn = T5LayerNorm(), T5Attention()
        self.wi, self.wo = nn.Linear(DIM, 40, bias=False), nn.Linear(40, DIM, bias=False)

    def forward(self, x, bias, memory=None):
        x = x + self.self_attn(self.ln_self(x), bias=bias)
        if memory is not None:
            x = x + self.cross_attn(self.ln_cross(x), memory)
        return x + self.wo(F.relu(self.wi(self.ln_ff(x))))


class T5(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, DIM)
        self.encoder = nn.ModuleList([T5Block(False, i == 0) for i in range(2)])
        self.decoder = nn.ModuleList([T5Block(True, i == 0) for i in range(2)])
        self.enc_norm, self.dec_norm = T5LayerNorm(), T5LayerNorm()

    def forward(self, src, labels):
        x, bias = self.shared(src), self.encoder[0].self_attn.compute_bias(src.size(1))
        for block in self.encoder:
            x = block(x, bias)
        memory = self.enc_norm(x)
        x = self.shared(F.pad(labels[:, :-1], (1, 0)))
        n = labels.size(1)
        bias = self.decoder[0].self_attn.compute_bias(n)
        bias = bias + torch.full((n, n), -1e9).triu(1)
        for block in self.decoder:
            x = block(x, bias, memory)
        logits = F.linear(self.dec_norm(x) * DIM ** -0.5, self.shared.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, lr, eps=(1e-30, 1e-3), clip=1.0, decay=-0.8):
        super().__init__(params, dict(lr=lr, eps=eps, clip=clip, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, g = self.state[p], p.grad
                state["step"] = state.get("step", 0) + 1
                scale = max(group["eps"][1], (p.norm() / math.sqrt(p.numel())).item())
                beta = 1 - state["step"] ** group["decay"]
                square = g ** 2 + group["eps"][0]
                if p.ndim == 2:
                    row = state.setdefault("row", torch.zeros(p.size(0))).mul_(beta).add_(square.mean(1), alpha=1 - beta)
                    col = state.setdefault("col", torch.zeros(p.size(1))).mul_(beta).add_(square.mean(0), alpha=1 - beta)
                    update = g * torch.outer((row / row.mean()).rsqrt(), col.rsqrt())
                else:
                    v = state.setdefault("v", torch.zeros_like(p)).mul_(beta).add_(square, alpha=1 - beta)
                    update = g * v.rsqrt()
                rms = update.norm() / math.sqrt(update.numel())
                update.div_((rms / group["clip"]).clamp(min=1.0))
                p.add_(update, alpha=-group["lr"] * scale)


torch.manual_seed(101)
model = T5()
torch.save(model.state_dict(), sys.argv[1])
opt = Adafactor(model.parameters(), lr=0.01)
gen = torch.Generator().manual_seed(102)
losses = []
for step in range(5):
    src = torch.randint(1, VOCAB, (8, 10), generator=gen)
    labels = torch.randint(1, VOCAB, (8, 7), generator=gen)
    opt.zero_grad()
    loss = model(src, labels)
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
