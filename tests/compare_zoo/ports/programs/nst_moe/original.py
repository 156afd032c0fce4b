# SPDX-License-Identifier: Apache-2.0
"""Mixtral-like blocks: top-2 routing with a loop over the experts and a load balancing loss."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HIDDEN, FFN, EXPERTS, TOP_K, VOCAB, LAYERS = 20, 28, 4, 2, 37, 2
AUX_COEF = 0.05


class MixtralExpert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FFN, bias=False)
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)
        self.w3 = nn.Linear(HIDDEN, FFN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- gate_side


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(MixtralExpert() for _ in range(EXPERTS))

    def forward(self, hidden_states):
        b, s, d = hidden_states.shape
        flat = hidden_states.view(-1, d)
        router_logits = self.gate(flat)
        routing_weights = F.softmax(router_logits, dim=1)
        routing_weights, selected = torch.topk(routing_weights, TOP_K, dim=-1)
        routing_weights /= routing_weights.sum(dim=-1, keepdim=True)  # <- renormalise
        final = torch.zeros_like(flat)
        expert_mask = F.one_hot(selected, EXPERTS).permute(2, 1, 0)
        for e in range(EXPERTS):
            idx, top_x = torch.where(expert_mask[e])
            out = self.experts[e](flat[top_x]) * routing_weights[top_x, idx, None]  # <- renormalise
            final.index_add_(0, top_x, out)
        return final.view(b, s, d), router_logits


def load_balancing_loss(gate_logits):
    concatenated = torch.cat(gate_logits, dim=0)  # <- balance_layers
    routing_weights = F.softmax(concatenated, dim=-1)
    _, selected = torch.topk(routing_weights, TOP_K, dim=-1)
    expert_mask = F.one_hot(selected, EXPERTS).float()
    tokens_per_expert = expert_mask.mean(dim=0)  # <- balance_layers
    router_prob_per_expert = routing_weights.mean(dim=0)  # <- balance_layers
    overall_loss = torch.sum(tokens_per_expert * router_prob_per_expert)  # <- balance_layers
    return overall_loss * EXPERTS  # <- balance_layers


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.mixers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(LAYERS))
        self.blocks = nn.ModuleList(SparseMoeBlock() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN, eps=1e-5) for _ in range(LAYERS + 1))
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids):
        h = self.embed_tokens(ids)
        count = torch.arange(1, ids.shape[1] + 1).view(1, -1, 1)
        all_logits = []
        for mixer, block, norm in zip(self.mixers, self.blocks, self.norms):
            h = h + mixer(h.cumsum(1) / count)  # <- running_mean
            out, logits = block(norm(h))
            h = h + out
            all_logits.append(logits)
        return self.lm_head(self.norms[-1](h)), all_logits


torch.manual_seed(0)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True,
                              weight_decay=0.1)  # <- decay_scope
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=3e-4)
g = torch.Generator().manual_seed(99)
losses = []
for _ in range(5):
    ids = torch.randint(VOCAB, (3, 12), generator=g)
    logits, gates = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss = loss + AUX_COEF * load_balancing_loss(gates)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay_scope
    sched.step()
    losses.append(loss.item())
print(losses)
