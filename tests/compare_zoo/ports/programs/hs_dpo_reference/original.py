# SPDX-License-Identifier: Apache-2.0
"""DPO of low-rank adapters; the reference is the same model with the adapters switched off."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(41)

VOCAB, WIDTH, HEADS, RANK, PROMPT, LONGEST, PAIRS, BATCH = 17, 16, 2, 3, 4, 6, 18, 6
BETA, SFT = 0.5, 0.05


class LoRALinear(nn.Module):
    def __init__(self, n_in, n_out, alpha=6.0):
        super().__init__()
        self.base = nn.Linear(n_in, n_out)
        self.lora_a = nn.Parameter(torch.randn(RANK, n_in) / n_in ** 0.5)
        self.lora_b = nn.Parameter(torch.zeros(n_out, RANK))
        self.scaling = alpha / RANK
        self.enabled = True
        self.base.requires_grad_(False)

    def forward(self, x):
        y = self.base(x)
        if self.enabled:
            y = y + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scaling
        return y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.value = LoRALinear(WIDTH, WIDTH), LoRALinear(WIDTH, WIDTH)
        self.key, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(approximate="tanh"), nn.Linear(32, WIDTH))

    def forward(self, x):
        def split(y):
            return y.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        h = self.ln1(x)
        y = F.scaled_dot_product_attention(split(self.query(h)), split(self.key(h)), split(self.value(h)), is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln2(x))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(PROMPT + LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))

    def adapters(self, on):
        for module in self.modules():
            if isinstance(module, LoRALinear):
                module.enabled = on


def sequence_logp(model, ids, mask):
    logp = model(ids)[:, :-1].log_softmax(-1)
    picked = logp.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return (picked * mask[:, 1:]).sum(-1)


policy = Policy()
for name, p in policy.named_parameters():
    p.requires_grad_("lora_" in name)
torch.save(policy.state_dict(), sys.argv[1])

g = torch.Generator().manual_seed(6)
prompts = torch.randint(0, VOCAB, (PAIRS, PROMPT), generator=g)
answers = torch.randint(0, VOCAB, (2, PAIRS, LONGEST), generator=g)
lengths = torch.randint(2, LONGEST + 1, (2, PAIRS), generator=g)


def build(side, rows):
    ids = torch.cat([prompts[rows], answers[side, rows]], 1)
    real = torch.arange(LONGEST) < lengths[side, rows].unsqueeze(1)
    return ids, torch.cat([torch.zeros(len(rows), PROMPT), real.float()], 1)


optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.01)
losses = []
for epoch in range(2):
    for rows in torch.randperm(PAIRS, generator=g).split(BATCH):
        chosen, rejected = build(0, rows), build(1, rows)
        policy.adapters(False)
        with torch.no_grad():
            ref_chosen, ref_rejected = sequence_logp(policy, *chosen), sequence_logp(policy, *rejected)
        policy.adapters(True)
        pi_chosen, pi_rejected = sequence_logp(policy, *chosen), sequence_logp(policy, *rejected)
        margin = BETA * ((pi_chosen - ref_chosen) - (pi_rejected - ref_rejected))
        nll = -pi_chosen / chosen[1].sum(-1)
        loss = (-F.logsigmoid(margin) + SFT * nll).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

print(losses)
