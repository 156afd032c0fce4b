# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2-like language model (pre-norm, causal mask, tied head) trained with Adam and a cosine schedule."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, LAYERS, CONTEXT, STEPS = 41, 24, 3, 2, 12, 4


class Conv1D(nn.Module):
    """The linear layer of GPT-2: its weight stands (in, out)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * 0.2)
        self.bias = nn.Parameter(torch.randn(n_out) * 0.1)

    def forward(self, x):
        return x @ self.weight + self.bias  # <- c_proj


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = Conv1D(WIDTH, 3 * WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.c_attn(x).split(WIDTH, dim=-1)
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- scale
        y = y.transpose(1, 2).reshape(b, t, WIDTH)
        return self.c_proj(y)  # <- c_proj


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_fc = Conv1D(WIDTH, 4 * WIDTH)
        self.c_proj = Conv1D(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight  # <- tied

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight[: tokens.size(1)]  # <- tied
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))  # <- tied
        return F.cross_entropy(
            logits[:, :-1].reshape(-1, VOCAB), labels[:, 1:].reshape(-1)
        )  # <- ignore


torch.manual_seed(2)
model = GPT()
with torch.no_grad():
    model.wte.weight.mul_(0.4)
    for norm in (m for m in model.modules() if isinstance(m, nn.LayerNorm)):
        norm.weight.add_(0.2 * torch.randn(WIDTH))
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.95))  # <- tied schedule
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda n: (n + 1) / 2 if n < 2 else 0.5 * (1 + math.cos(math.pi * (n - 1) / (STEPS - 1))),
)  # <- schedule
random = np.random.RandomState(8)
losses = []
for _ in range(STEPS):
    tokens = random.randint(1, VOCAB, (4, 10))
    length = random.randint(5, 11, (4, 1))
    labels = np.where(np.arange(10) < length, tokens, -100)  # <- ignore
    tokens = np.where(np.arange(10) < length, tokens, 0)
    loss = model(torch.tensor(tokens), torch.tensor(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- tied schedule
    scheduler.step()  # <- schedule
    losses.append(loss.item())
print(losses)
