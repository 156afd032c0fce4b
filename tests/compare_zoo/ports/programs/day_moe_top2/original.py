# SPDX-License-Identifier: Apache-2.0
"""A small language model with a mixture of experts, of which each token asks two, in loops."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, EXPERTS, TOP_K, HIDDEN, LENGTH = 33, 24, 3, 4, 2, 32, 10
AUX_COEF = 0.05


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN)
        self.w2 = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))  # <- experts


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, hidden_states):
        batch, length, dim = hidden_states.shape
        hidden_states = hidden_states.view(-1, dim)
        router_logits = self.gate(hidden_states)
        routing_weights = F.softmax(router_logits, dim=-1)
        top_weights, selected = torch.topk(routing_weights, TOP_K, dim=-1)  # <- one
        top_weights = top_weights / top_weights.sum(dim=-1, keepdim=True)  # <- renormalised
        final = torch.zeros_like(hidden_states)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(selected == index)
            out = expert(hidden_states[token]) * top_weights[token, slot, None]  # <- renormalised
            final.index_add_(0, token, out)  # <- one
        tokens_per_expert = F.one_hot(selected, EXPERTS).float().mean(dim=(0, 1))  # <- balance
        probability = routing_weights.mean(dim=0)  # <- balance
        aux_loss = EXPERTS * (tokens_per_expert * probability).sum()  # <- balance
        return final.view(batch, length, dim), aux_loss


class MoeLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, HEADS, bias=False, batch_first=True)
        self.ln_2 = nn.LayerNorm(DIM)
        self.moe = SparseMoeBlock()

    def forward(self, x, mask):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=mask)[0]
        h, aux_loss = self.moe(self.ln_2(x))
        return x + h, aux_loss  # <- residual


class MoeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([MoeLayer(), MoeLayer()])
        self.norm = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        mask = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1)
        x, aux = self.embed(ids), 0.0
        for layer in self.layers:
            x, aux_loss = layer(x, mask)
            aux = aux + aux_loss  # <- summed
        return self.lm_head(self.norm(x)), aux


torch.manual_seed(81)
model = MoeModel()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
batches = np.random.default_rng(82).integers(0, VOCAB, (3, 4, LENGTH + 1))
losses = []
for ids in torch.from_numpy(batches):
    logits, aux = model(ids[:, :-1])
    lm_loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss = lm_loss + AUX_COEF * aux  # <- summed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
