# SPDX-License-Identifier: Apache-2.0
"""The GPT in another loop: AdamW, loss and embedding by hand, metrics that nobody trains on."""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, LAYERS, LENGTH = 29, 24, 3, 2, 10


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        mask = torch.tril(torch.ones(LENGTH, LENGTH))  # <- mask
        mask = mask.view(1, 1, LENGTH, LENGTH)
        self.register_buffer("bias", mask, persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)  # <- mapping
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))  # <- scale
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))  # <- mask scale
        att = F.softmax(att, dim=-1)  # <- axis
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.gelu = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.c_fc(x)
        x = self.gelu(x)  # <- gelu
        return self.c_proj(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))  # <- post_norm eps
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.apply(self.init_weights)
        self.lm_head.weight = self.wte.weight

    def init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.2)

    def forward(self, idx, targets):
        x = F.one_hot(idx, VOCAB).float() @ self.wte.weight + self.wpe.weight[: idx.size(1)]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        log_probs = logits - logits.logsumexp(-1, keepdim=True)
        self.accuracy = (logits.argmax(-1) == targets).float().mean().item()
        self.entropy = -(log_probs.exp() * log_probs).sum(-1).mean().item()
        return -log_probs.gather(-1, targets[..., None]).mean()


def adamw(parameters, state, step, lr, *, beta1=0.9, beta2=0.95, decay=0.1, eps=1e-8):
    for p, (m, v) in zip(parameters, state):
        p.data.mul_(1 - lr * decay)  # <- rate decay
        m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)  # <- second
        size = lr / (1 - beta1**step)  # <- rate
        root = (v / (1 - beta2**step)).sqrt() + eps  # <- corrected second
        p.data.addcdiv_(m, root, value=-size)  # <- rate corrected


model = GPT()
model.load_state_dict(torch.load(sys.argv[1]))
parameters = list(model.parameters())
state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
norms = []
text = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, (3, 4, LENGTH + 1)))
losses = []
for step, batch in enumerate(text, 1):
    model.zero_grad()
    loss = model(batch[:, :-1], batch[:, 1:])
    loss.backward()
    norms.append(torch.stack([p.grad.norm() for p in parameters]).norm().item())
    adamw(parameters, state, step, lr=3e-3)
    losses.append(loss.item())
