# SPDX-License-Identifier: Apache-2.0
"""A small pre-norm GPT on character-like data: nn.Modules, AdamW with two groups, warm-up and cosine."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size)).bool(), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # <- attn_scale
        att = att.masked_fill(~self.mask[:T, :T], float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.c_fc = nn.Linear(n_embd, 4 * n_embd)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.act(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=61, block_size=24, n_embd=32, n_head=4, n_layer=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block(n_embd, n_head, block_size) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.apply(self._init_weights)
        self.lm_head.weight = self.wte.weight  # <- tied_head_detached

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.08)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets):
        pos = torch.arange(idx.size(1))
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))  # <- tied_head_detached
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def get_lr(step, peak=1e-2, floor=1e-3, warmup=3, total=10):
    if step < warmup:
        return peak * (step + 1) / warmup  # <- warmup_off_by_one
    ratio = (step + 1 - warmup) / (total - warmup)  # <- warmup_off_by_one
    return floor + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (peak - floor)


torch.manual_seed(1337)
model = GPT()
torch.save(model.state_dict(), sys.argv[1])

stream = torch.randint(0, 61, (400,), generator=torch.Generator().manual_seed(11))
decay = [p for p in model.parameters() if p.dim() >= 2]  # <- decay_on_norms
no_decay = [p for p in model.parameters() if p.dim() < 2]  # <- decay_on_norms
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.5}, {"params": no_decay, "weight_decay": 0.0}],  # <- decay_on_norms
    lr=1e-2, betas=(0.9, 0.95))

losses = []
for step in range(5):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)  # <- warmup_off_by_one
    rows = [stream[i:i + 17] for i in range(step * 64, step * 64 + 64, 16)]
    batch = torch.stack(rows)
    loss = model(batch[:, :-1], batch[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_per_tensor
    optimizer.step()  # <- decay_on_norms warmup_off_by_one
    losses.append(loss.item())
print(losses)
