# SPDX-License-Identifier: Apache-2.0
"""Switch transformer layer: top-1 routing by one-hot dispatch with a capacity, balance and router z-loss."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

VOCAB, DIM, HEADS, EXPERTS, SEQ, BATCH = 31, 24, 3, 5, 12, 4


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi = nn.Parameter(torch.randn(EXPERTS, DIM, 2 * DIM) * DIM**-0.5)
        self.wo = nn.Parameter(torch.randn(EXPERTS, 2 * DIM, DIM) * (2 * DIM) ** -0.5)

    def forward(self, x):
        return torch.relu(x @ self.wi) @ self.wo


class SwitchFFN(nn.Module):
    def __init__(self, capacity_factor=1.0):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = Experts()
        self.capacity_factor = capacity_factor

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, DIM)
        capacity = math.ceil(self.capacity_factor * x.size(0) / EXPERTS)  # <- capacity_rounded_down
        logits = self.router(x)
        probs = F.softmax(logits, dim=-1)
        gate, index = probs.max(dim=-1)  # <- gate_detached
        expert_mask = F.one_hot(index, EXPERTS).float()

        balance = EXPERTS * (expert_mask.mean(0) * probs.mean(0)).sum()  # <- balance_after_drop
        z_loss = torch.logsumexp(logits, dim=-1).square().mean()  # <- z_loss_not_squared

        position = (torch.cumsum(expert_mask, dim=0) - 1) * expert_mask
        expert_mask = expert_mask * (position < capacity)  # <- capacity_rounded_down
        slot = F.one_hot(position.sum(1).long().clamp(max=capacity - 1), capacity).float()
        dispatch = expert_mask[:, :, None] * slot[:, None, :]  # <- capacity_rounded_down
        combine = dispatch * gate[:, None, None]  # <- gate_detached

        inputs = torch.einsum("nec,nd->ecd", dispatch, x)
        outputs = self.experts(inputs)
        y = torch.einsum("nec,ecd->nd", combine, outputs)  # <- gate_detached
        return y.reshape(shape), balance, z_loss


class SwitchLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(SEQ, DIM) * 0.3)
        self.norm1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(DIM)
        self.ffn = SwitchFFN()
        self.norm3 = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos
        mask = nn.Transformer.generate_square_subsequent_mask(SEQ)
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False, is_causal=True)[0]
        y, balance, z_loss = self.ffn(self.norm2(x))
        return self.head(self.norm3(x + y)), balance, z_loss


torch.manual_seed(77)
model = SwitchLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98))  # <- bias_correction_missing
gen = torch.Generator().manual_seed(13)

losses = []
for step in range(5):
    tokens = torch.randint(VOCAB, (BATCH, SEQ + 1), generator=gen)
    tokens[:, 1::3] = tokens[:, 0:1]
    logits, balance, z_loss = model(tokens[:, :-1])
    ce = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
    loss = ce + 1e-2 * balance + 1e-3 * z_loss  # <- balance_after_drop z_loss_not_squared
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_correction_missing
    losses.append(loss.item())
print(losses)
