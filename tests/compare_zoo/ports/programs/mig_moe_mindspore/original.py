# SPDX-License-Identifier: Apache-2.0
"""A small GPT of PyTorch modules with two chosen experts a token, a balance loss and a warmup."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, EXPERTS, TOP, LAYERS, SEQ = 40, 24, 3, 4, 2, 2, 8


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))  # <- gelu
            for _ in range(EXPERTS)
        )

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        probs = self.gate(flat).softmax(dim=-1)
        weight, chosen = probs.topk(TOP, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)  # <- renormed
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == e)
            if len(token):
                out.index_add_(
                    0, token, expert(flat[token]) * weight[token, slot, None]
                )  # <- gelu renormed
        share = F.one_hot(chosen, EXPERTS).float().sum(1).mean(0)  # <- balance
        balance = EXPERTS * (share * probs.mean(0)).sum()  # <- balance
        return out.view_as(x), balance


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.ln_2 = nn.LayerNorm(DIM)
        self.mlp = MoE()

    def forward(self, x):
        h = self.ln_1(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        h, _ = self.attn(h, h, h, attn_mask=mask, need_weights=False)
        x = x + h
        h, balance = self.mlp(self.ln_2(x))
        return x + h, balance


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Embedding(SEQ, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(DIM)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        total = 0.0
        for block in self.blocks:
            x, balance = block(x)
            total = total + balance
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 0.02 * total  # <- balance


torch.manual_seed(141)
model = GPT()
with torch.no_grad():
    model.wte.weight.mul_(0.3)
    for block in model.blocks:
        block.mlp.gate.weight.mul_(2.0)
        for expert in block.mlp.experts:
            expert[0].weight.mul_(2.5)
        block.attn.in_proj_bias.normal_(0.0, 0.1)
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)  # <- nesterov
warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 4))  # <- warmup
generator = torch.Generator().manual_seed(142)
losses = []
for step in range(5):
    text = torch.randint(VOCAB, (4, SEQ + 1), generator=generator)
    loss = model(text[:, :-1], text[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()  # <- nesterov warmup
    warmup.step()  # <- warmup
    losses.append(loss.item())
