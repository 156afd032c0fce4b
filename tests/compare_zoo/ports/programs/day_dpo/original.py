# SPDX-License-Identifier: Apache-2.0
"""Direct preference optimisation of a small language model: chosen and rejected answers in one
batch, a frozen copy as the reference.
"""

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LENGTH, PROMPT, PAIRS, BETA, IGNORE = 28, 24, 3, 12, 4, 4, 0.5, -100


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.ReLU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x, mask):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))  # <- post_norm


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.place = nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        T = ids.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = self.embed(ids) + self.place(torch.arange(T))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def get_batch_logps(logits, labels):
    labels = labels[:, 1:].clone()  # <- shift
    logits = logits[:, :-1]  # <- shift
    loss_mask = labels != IGNORE  # <- padding
    labels[labels == IGNORE] = 0
    per_token_logps = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
    return (per_token_logps * loss_mask).sum(-1)  # <- average padding shift


def dpo_loss(policy_chosen, policy_rejected, reference_chosen, reference_rejected):
    pi_logratios = policy_chosen - policy_rejected
    ref_logratios = reference_chosen - reference_rejected
    logits = pi_logratios - ref_logratios  # <- reference
    return -F.logsigmoid(BETA * logits).mean()  # <- beta


torch.manual_seed(5)
policy = LanguageModel()
torch.save(policy.state_dict(), sys.argv[1])
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.RMSprop(policy.parameters(), lr=2e-3)
rng = np.random.default_rng(6)
losses = []
for _ in range(3):
    prompts = rng.integers(1, VOCAB, (PAIRS, PROMPT))
    answers = rng.integers(1, VOCAB, (2, PAIRS, LENGTH - PROMPT))
    ends = rng.integers(3, LENGTH - PROMPT + 1, (2, PAIRS))
    ids = np.concatenate([np.concatenate([prompts, answer], axis=1) for answer in answers])
    outside = np.arange(LENGTH) >= PROMPT + ends.reshape(-1, 1)
    ids[outside] = 0
    labels = np.where(outside | (np.arange(LENGTH) < PROMPT), IGNORE, ids)
    ids, labels = torch.from_numpy(ids), torch.from_numpy(labels)
    chosen, rejected = get_batch_logps(policy(ids), labels).chunk(2)
    with torch.no_grad():
        ref_chosen, ref_rejected = get_batch_logps(reference(ids), labels).chunk(2)  # <- reference
    loss = dpo_loss(chosen, rejected, ref_chosen, ref_rejected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
