# SPDX-License-Identifier: Apache-2.0
"""LoRA fine tuning of a decoder with grouped queries and a sliding window, separate projections,
full attention; then greedy generation by full forwards from left-padded prompts.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, KV, HEAD, INNER, LAYERS, WINDOW, RANK, ALPHA = 40, 32, 4, 2, 8, 48, 2, 5, 4, 12


class LoraLinear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.base = nn.Linear(d_in, d_out, bias=False).requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(RANK, d_in) / d_in**0.5)
        self.lora_B = nn.Parameter(0.1 * torch.randn(d_out, RANK))

    def forward(self, x):
        delta = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return self.base(x) + delta * (ALPHA / RANK)  # <- scaling


def turn(x):
    return torch.cat((-x[..., HEAD // 2 :], x[..., : HEAD // 2]), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.v_proj = LoraLinear(DIM, HEADS * HEAD), LoraLinear(DIM, KV * HEAD)
        self.k_proj = nn.Linear(DIM, KV * HEAD, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD, DIM, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(DIM, eps=1e-6), nn.RMSNorm(DIM, eps=1e-6)
        self.up, self.down = nn.Linear(DIM, INNER), nn.Linear(INNER, DIM)

    def forward(self, x, cos, sin, visible):
        b, s, _ = x.shape
        h = self.norm1(x)
        q = self.q_proj(h).view(b, s, HEADS, HEAD).transpose(1, 2)  # <- scaling
        k = self.k_proj(h).view(b, s, KV, HEAD).transpose(1, 2)
        v = self.v_proj(h).view(b, s, KV, HEAD).transpose(1, 2)  # <- scaling
        q, k = q * cos + turn(q) * sin, k * cos + turn(k) * sin  # <- cache_position
        k, v = (t.repeat_interleave(HEADS // KV, dim=1) for t in (k, v))  # <- groups
        scores = q @ k.transpose(2, 3) / math.sqrt(HEAD)  # <- groups
        weights = scores.masked_fill(~visible, -1e9).softmax(-1)  # <- window
        y = (weights @ v).transpose(1, 2).reshape(b, s, -1)  # <- groups
        x = x + self.o_proj(y)
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(DIM, eps=1e-6)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, attention):
        s = ids.shape[1]
        positions = (attention.cumsum(1) - 1).clamp(min=0)  # <- cache_position
        rates = 1000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angle = (positions[:, None, :, None] * rates).repeat(1, 1, 1, 2)  # <- cache_position
        back = torch.arange(s)[:, None] - torch.arange(s)
        visible = ((back >= 0) & (back < WINDOW)) & attention[:, None, None, :].bool()  # <- window
        visible = visible | torch.eye(s, dtype=torch.bool)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, angle.cos(), angle.sin(), visible)  # <- cache_position
        return self.lm_head(self.norm(x))


torch.manual_seed(51)
model = Decoder()
for name, p in model.named_parameters():
    p.requires_grad_("lora_" in name)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02, eps=1e-5)
generator = torch.Generator().manual_seed(52)
losses = []
for _ in range(4):
    ids = torch.randint(1, VOCAB, (4, 10), generator=generator)
    prompt = torch.randint(1, 5, (4, 1), generator=generator)
    target = ids.masked_fill(torch.arange(10) < prompt, -100)  # <- prompt_mask
    logits = model(ids, torch.ones_like(ids))
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), target[:, 1:])  # <- prompt_mask
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

ids = torch.randint(1, VOCAB, (2, 6), generator=generator)
attention = torch.ones_like(ids)
ids[1, :2], attention[1, :2] = 0, 0
with torch.no_grad():
    for _ in range(4):
        logp = model(ids, attention)[:, -1].log_softmax(-1)
        best, token = logp.max(-1)
        losses.append(best.sum().item())
        ids = torch.cat((ids, token[:, None]), 1)
        attention = torch.cat((attention, torch.ones(2, 1, dtype=torch.long)), 1)
