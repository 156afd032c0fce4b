# SPDX-License-Identifier: Apache-2.0
"""A mixture-of-experts language model in the GPU manner: a loop over experts with index_add, top-2
routing, a shared expert behind a gate, the balance loss of Switch, a z-loss; SGD with momentum.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, INNER, EXPERTS, TOP, LAYERS = 40, 24, 32, 5, 2, 2


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, INNER, bias=False)
        self.up_proj = nn.Linear(DIM, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, DIM, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])
        self.shared_expert = Expert()
        self.shared_expert_gate = nn.Linear(DIM, 1, bias=False)

    def forward(self, hidden):
        x = hidden.reshape(-1, DIM)
        router_logits = self.gate(x)
        probs = F.softmax(router_logits, dim=-1)
        weights, selected = torch.topk(probs, TOP, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)  # <- renormalize
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, place = torch.where(selected == e)  # <- unpermute
            y = expert(x[token]) * weights[token, place, None]  # <- renormalize unpermute
            out = out.index_add(0, token, y)  # <- unpermute renormalize
        shared = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)  # <- shared_gate
        out = out + shared  # <- shared_gate
        share = F.one_hot(selected, EXPERTS).float().mean((0, 1))  # <- balance
        balance = EXPERTS * (share * probs.mean(0)).sum()  # <- balance
        z_loss = torch.logsumexp(router_logits, dim=-1).square().mean()
        return out.view_as(hidden), balance, z_loss


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(DIM, DIM, 3, groups=DIM)  # <- causal
        self.norm1 = nn.LayerNorm(DIM)
        self.norm2 = nn.LayerNorm(DIM)
        self.moe = SparseMoeBlock()

    def forward(self, x):
        h = F.pad(self.norm1(x).transpose(1, 2), (2, 0))  # <- causal
        x = x + self.mix(h).transpose(1, 2)  # <- causal
        y, balance, z_loss = self.moe(self.norm2(x))
        return x + y, balance, z_loss


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x, balance, z_loss = self.embed(ids), 0.0, 0.0
        for layer in self.layers:
            x, b, z = layer(x)
            balance, z_loss = balance + b, z_loss + z
        return self.head(x), balance, z_loss


torch.manual_seed(31)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
generator = torch.Generator().manual_seed(32)
losses = []
for _ in range(4):
    ids = torch.randint(VOCAB, (3, 9), generator=generator)
    logits, balance, z_loss = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss = loss + 0.05 * balance + 0.01 * z_loss  # <- balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
