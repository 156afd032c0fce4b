# SPDX-License-Identifier: Apache-2.0
"""GPT-2-like language model (Conv1D, learned positions, tied head) with warm-up and AdamW."""

import math
import sys

import torch
from torch import nn


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.08))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(size_out)


def gelu_new(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))  # <- activation
    return 0.5 * x * (1.0 + torch.tanh(inner))  # <- activation


class GPT2Block(nn.Module):
    def __init__(self, d, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln_1 = nn.LayerNorm(d, eps=1e-5)
        self.c_attn = Conv1D(3 * d, d)
        self.c_proj = Conv1D(d, d)
        self.ln_2 = nn.LayerNorm(d, eps=1e-5)
        self.c_fc = Conv1D(4 * d, d)
        self.mlp_proj = Conv1D(d, 4 * d)

    def attn(self, x, mask):
        b, t, d = x.shape
        query, key, value = self.c_attn(x).split(d, dim=2)
        shape = (b, t, self.n_head, d // self.n_head)
        query, key, value = (z.view(shape).transpose(1, 2) for z in (query, key, value))
        weights = torch.matmul(query, key.transpose(-1, -2))  # <- scale
        weights = weights / math.sqrt(value.size(-1))  # <- scale
        weights = nn.functional.softmax(weights + mask, dim=-1)  # <- padding
        out = torch.matmul(weights, value)
        return self.c_proj(out.transpose(1, 2).reshape(b, t, d))

    def forward(self, x, mask):
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.mlp_proj(gelu_new(self.c_fc(self.ln_2(x))))  # <- activation


class GPT2(nn.Module):
    def __init__(self, vocab=53, d=24, ctx=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        nn.init.normal_(self.wte.weight, std=0.08)
        nn.init.normal_(self.wpe.weight, std=0.08)
        self.h = nn.ModuleList([GPT2Block(d, 3), GPT2Block(d, 3)])
        self.ln_f = nn.LayerNorm(d)

    def forward(self, input_ids, attention_mask):
        t = input_ids.size(1)
        position_ids = attention_mask.cumsum(-1) - 1  # <- positions
        position_ids = position_ids.masked_fill(attention_mask == 0, 1)  # <- positions
        neg = torch.finfo(torch.float32).min
        causal = torch.full((t, t), neg).triu(1)
        pad = (1.0 - attention_mask[:, None, None, :].float()) * neg  # <- padding
        mask = torch.clamp(causal + pad, min=neg)  # <- padding
        hidden = self.wte(input_ids) + self.wpe(position_ids)  # <- positions
        for block in self.h:
            hidden = block(hidden, mask)
        return self.ln_f(hidden) @ self.wte.weight.t()


torch.manual_seed(0)
model = GPT2()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 3))  # <- warmup
gen, losses = torch.Generator().manual_seed(3), []
for step in range(4):
    ids = torch.randint(0, 53, (4, 10), generator=gen)
    mask = (torch.arange(10) >= torch.tensor([0, 2, 3, 1])[:, None]).long()  # left padding
    logits = model(ids, mask)
    labels = ids.masked_fill(mask.cumsum(-1) < 2, -100)  # a token after padding is no target
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup
    scheduler.step()  # <- warmup
    losses.append(loss.item())
print(losses)
