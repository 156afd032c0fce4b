# SPDX-License-Identifier: Apache-2.0
"""LoRA fine-tuning of a frozen one-block decoder; separate q, k, v and an explicit softmax."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, HEADS, T = 22, 16, 4, 10


class LoRALinear(nn.Module):
    def __init__(self, base, r, lora_alpha):
        super().__init__()
        self.base = base
        self.base.weight.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scaling = lora_alpha / r  # <- lora_scale
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        nn.init.normal_(self.lora_B, std=0.3)

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling  # <- lora_scale


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = LoRALinear(nn.Linear(DIM, DIM, bias=False), r=2, lora_alpha=8)
        self.k_proj = nn.Linear(DIM, DIM, bias=False)
        self.v_proj = LoRALinear(nn.Linear(DIM, DIM, bias=False), r=2, lora_alpha=8)
        self.o_proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, cos, sin):
        B, S, _ = x.shape
        q = self.q_proj(x).view(B, S, HEADS, -1).transpose(1, 2)
        k = self.k_proj(x).view(B, S, HEADS, -1).transpose(1, 2)
        v = self.v_proj(x).view(B, S, HEADS, -1).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)  # <- rotary_pairs
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        gap = torch.arange(S)[:, None] - torch.arange(S)[None, :]
        banned = (gap < 0) | (gap >= 4)  # <- local_window
        probs = scores.masked_fill(banned, float("-inf")).softmax(-1)  # <- local_window
        out = (probs @ v).transpose(1, 2).reshape(B, S, DIM)
        return self.o_proj(out)


def rotary_table():
    half = DIM // HEADS // 2
    inv = 100.0 ** (-torch.arange(half).float() / half)
    ang = torch.outer(torch.arange(T).float(), inv)
    return torch.cat([ang, ang], -1).cos(), torch.cat([ang, ang], -1).sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)  # <- rotary_pairs
    return x * cos + torch.cat([-b, a], -1) * sin  # <- rotary_pairs


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = Attention()
        self.fc, self.proj = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, idx):
        x = self.embed(idx)
        x = x + self.attn(self.ln1(x), *rotary_table())
        x = x + self.proj(F.gelu(self.fc(x)))
        return self.lm_head(self.ln2(x))


torch.manual_seed(10)
model = Decoder()
for name, p in model.named_parameters():
    p.requires_grad_("lora_" in name or name.startswith("ln"))  # <- norm_trained
with torch.no_grad():
    for w in (model.attn.q_proj.base, model.attn.k_proj):
        w.weight.mul_(3)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(29)
ids = torch.randint(0, VOCAB, (4, 5, T + 1), generator=gen)
answer = torch.rand(4, 5, T, generator=gen) < 0.6

trainable = [p for p in model.parameters() if p.requires_grad]  # <- norm_trained
optimizer = torch.optim.Adamax(trainable, lr=0.05)
losses = []
for seq, keep in zip(ids, answer):
    labels = seq[:, 1:].masked_fill(~keep, -100)  # <- prompt_tokens
    logits = model(seq[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())  # <- prompt_tokens
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- norm_trained
    losses.append(loss.item())
print(losses)
