# SPDX-License-Identifier: Apache-2.0
"""A small GPT in the manner of nanoGPT: pre-norm, learned positions, AdamW with decay groups."""
import math
import sys

import torch
import torch.nn as nn
from torch.nn import functional as F

torch.set_num_threads(1)
vocab_size, block_size, n_layer, n_head, n_embd = 37, 12, 2, 4, 32
learning_rate, min_lr, warmup_iters, lr_decay_iters = 1e-2, 1e-3, 2, 8
weight_decay, grad_clip, max_iters = 0.1, 1.0, 5


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
        k = k.view(B, T, n_head, C // n_head).transpose(1, 2)
        v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)  # <- head_merge
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(),
                                 nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight  # <- untied_head
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                std = 0.1 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.1
                nn.init.normal_(p, 0.0, std)

    def forward(self, idx, targets):
        pos = torch.arange(idx.size(1))
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))  # <- untied_head
        return F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))

    def configure_optimizers(self):
        params = list(self.parameters())
        decay = [p for p in params if p.dim() >= 2]  # <- embedding_decay
        nodecay = [p for p in params if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": weight_decay},  # <- embedding_decay
                  {"params": nodecay, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)  # <- warmup
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


torch.manual_seed(1337)
model = GPT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = model.configure_optimizers()
corpus = torch.randint(vocab_size, (400,), generator=torch.Generator().manual_seed(11))
corpus[1::2] = (corpus[::2] * 3 + 1) % vocab_size

losses = []
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)  # <- warmup
    starts = [it * 60 + 14 * j for j in range(4)]
    X = torch.stack([corpus[s:s + block_size] for s in starts])
    Y = torch.stack([corpus[s + 1:s + 1 + block_size] for s in starts])
    loss = model(X, Y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)  # <- clip_scope
    optimizer.step()  # <- embedding_decay warmup untied_head
    losses.append(loss.item())
print(losses)
