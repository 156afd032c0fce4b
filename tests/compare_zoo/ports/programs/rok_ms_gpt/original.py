# SPDX-License-Identifier: Apache-2.0
"""Small character GPT (pre-norm, own head) with AdamW, clipping and warm-up."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1337)

VOCAB, BLOCK, DIM, HEADS, LAYERS = 47, 16, 32, 4, 2
BATCH, STEPS, LR, WARMUP = 6, 4, 3e-3, 3


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(DIM, 3 * DIM)
        self.c_proj = nn.Linear(DIM, DIM)
        self.register_buffer("bias", torch.tril(torch.ones(BLOCK, BLOCK)), persistent=False)  # <- mask_hides_self

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(DIM, dim=2)  # <- qkv_order
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(C // HEADS)
        att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))  # <- mask_hides_self
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(DIM)  # <- layer_norm_eps
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(DIM)
        self.c_fc = nn.Linear(DIM, 4 * DIM)
        self.mlp_proj = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))  # <- layer_norm_eps
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(BLOCK, DIM)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)
        for name, p in self.named_parameters():
            if "wte" in name or "wpe" in name:
                nn.init.normal_(p, std=0.004)
            elif name.endswith("weight") and p.dim() == 2:
                nn.init.normal_(p, std=0.2)

    def forward(self, idx, targets):
        pos = torch.arange(idx.shape[1])
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


model = GPT()
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})

decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(  # <- no_bias_correction
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
    lr=LR, betas=(0.9, 0.95))
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / WARMUP))  # <- warmup_off_by_one

rng = np.random.RandomState(5)
text = (np.cumsum(rng.randint(0, 4, size=400)) % VOCAB).astype(np.int64)
losses = []
for step in range(STEPS):
    starts = rng.randint(0, len(text) - BLOCK - 1, size=BATCH)
    x = torch.from_numpy(np.stack([text[s:s + BLOCK] for s in starts]))
    y = torch.from_numpy(np.stack([text[s + 1:s + 1 + BLOCK] for s in starts]))
    optimizer.zero_grad(set_to_none=True)
    loss = model(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()  # <- no_bias_correction warmup_off_by_one
    scheduler.step()  # <- warmup_off_by_one
    losses.append(loss.item())
print(losses)
