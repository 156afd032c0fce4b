# SPDX-License-Identifier: Apache-2.0
"""Plain eager pre-norm decoder stack with separate projections and OPT-like position offset."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CTX, DIM, HEADS, LAYERS = 31, 12, 16, 2, 2


class LearnedPositionalEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, dim):
        self.offset = 2  # <- position_start
        super().__init__(num_embeddings + self.offset, dim)

    def forward(self, length):
        return super().forward(torch.arange(length) + self.offset)  # <- position_start


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        mask = torch.tril(torch.ones(CTX, CTX)).bool()
        self.register_buffer("mask", mask, persistent=False)

    def split(self, x):
        b, t, _ = x.size()
        return x.view(b, t, self.heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        b, t, c = x.size()
        q = self.split(self.q_proj(x))  # <- fused_layout
        k = self.split(self.k_proj(x))  # <- fused_layout
        v = self.split(self.v_proj(x))  # <- fused_layout
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.head_dim)  # <- fused_layout
        att = att.masked_fill(~self.mask[:t, :t], float("-inf"))
        y = F.softmax(att, dim=-1) @ v  # <- fused_layout
        return self.out_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class QuickGELU(nn.Module):
    def forward(self, x):
        return x / (1 + torch.exp(-1.702 * x))  # <- gelu_form


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(dim), SelfAttention(dim, heads)
        self.ln_2 = nn.LayerNorm(dim)
        self.fc_in, self.fc_out = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.act = QuickGELU()  # <- gelu_form

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        residual = x  # <- residual_source
        x = self.ln_2(x)
        x = self.fc_out(self.act(self.fc_in(x)))  # <- gelu_form
        return residual + x  # <- residual_source


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = LearnedPositionalEmbedding(CTX, DIM)
        self.h = nn.ModuleList([Block(DIM, HEADS) for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(idx.size(1))  # <- position_start
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def configure_optimizer(model, weight_decay, lr):
    decay = [p for p in model.parameters() if p.dim() >= 2]  # <- decay_group
    no_decay = [p for p in model.parameters() if p.dim() < 2]  # <- decay_group
    groups = [
        {"params": decay, "weight_decay": weight_decay},  # <- decay_group
        {"params": no_decay, "weight_decay": 0.0},  # <- decay_group
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


torch.manual_seed(0)
model = GPT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = configure_optimizer(model, weight_decay=0.1, lr=4e-3)

g = torch.Generator().manual_seed(314)
losses = []
for _ in range(4):
    block = torch.randint(0, VOCAB, (4, CTX + 1), generator=g)
    loss = model(block[:, :-1].contiguous(), block[:, 1:].contiguous())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # <- decay_group
    losses.append(loss.item())
print(losses)
