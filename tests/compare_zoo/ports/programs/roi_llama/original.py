# SPDX-License-Identifier: Apache-2.0
"""Small Llama (fused projections, grouped queries, tied head) fine-tuned under torch.compile."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2024)

DIM, N_LAYER, N_HEAD, N_KV, VOCAB, BLOCK = 32, 2, 4, 2, 50, 12
HEAD_DIM = DIM // N_HEAD


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope_cache(seq_len, head_dim, base=10000.0):
    theta = base ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(seq_len).float(), theta)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)  # <- rope_layout
    return torch.cat((-x2, x1), dim=-1)  # <- rope_layout


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, (N_HEAD + 2 * N_KV) * HEAD_DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split([C, N_KV * HEAD_DIM, N_KV * HEAD_DIM], dim=-1)
        q = q.view(B, T, N_HEAD, HEAD_DIM).transpose(1, 2)
        k = k.view(B, T, N_KV, HEAD_DIM).transpose(1, 2)
        v = v.view(B, T, N_KV, HEAD_DIM).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin  # <- rope_layout
        k = k * cos + rotate_half(k) * sin  # <- rope_layout
        k = k.repeat_interleave(N_HEAD // N_KV, dim=1)  # <- kv_repeat
        v = v.repeat_interleave(N_HEAD // N_KV, dim=1)  # <- kv_repeat
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(DIM), RMSNorm(DIM)
        self.attn = Attention()
        self.fc = nn.Linear(DIM, 2 * hidden, bias=False)  # gate and up in one matrix
        self.down = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm_1(x), cos, sin)
        gate, up = self.fc(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.h = nn.ModuleList([Block() for _ in range(N_LAYER)])
        self.ln_f = RMSNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.15)
        self.lm_head.weight = self.wte.weight  # <- tied_head
        cos, sin = rope_cache(BLOCK, HEAD_DIM)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.h:
            x = block(x, self.cos, self.sin)
        logits = self.lm_head(self.ln_f(x))  # <- tied_head
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), ignore_index=-100)  # <- prompt_mask


def get_batch(gen):
    ids = torch.randint(0, VOCAB, (4, BLOCK + 1), generator=gen)
    prompt = torch.randint(2, 7, (4,), generator=gen)
    x, y = ids[:, :-1], ids[:, 1:].clone()
    y[torch.arange(BLOCK)[None, :] < prompt[:, None]] = -100  # <- prompt_mask
    return x, y


raw_model = Llama()
torch.save(raw_model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(raw_model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)  # <- beta2
model = torch.compile(raw_model)
gen = torch.Generator().manual_seed(42)

losses = []
for step in range(5):
    x, y = get_batch(gen)
    loss = model(x, y)  # <- rope_layout kv_repeat tied_head prompt_mask
    loss.backward()
    torch.nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)
    optimizer.step()  # <- beta2
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
print(losses)
