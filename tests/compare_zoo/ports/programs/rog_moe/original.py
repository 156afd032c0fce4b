# SPDX-License-Identifier: Apache-2.0
"""A Mixtral-like mixture-of-experts language model: experts in a loop, a load-balancing loss, Adam."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, HIDDEN, FFN, LAYERS, HEADS, SEQ = 47, 32, 40, 2, 2, 12
NUM_EXPERTS, TOP_K, AUX_COEF, ACCUM = 4, 2, 0.05, 2


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FFN, bias=False)
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)
        self.w3 = nn.Linear(HIDDEN, FFN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, NUM_EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(NUM_EXPERTS))

    def forward(self, hidden_states):
        b, t, d = hidden_states.shape
        flat = hidden_states.view(-1, d)
        router_logits = self.gate(flat)
        weights, selected = torch.topk(F.softmax(router_logits, dim=-1), TOP_K, dim=-1)  # <- router_detach
        weights = weights / weights.sum(dim=-1, keepdim=True)  # <- topk_renorm router_detach
        out = torch.zeros_like(flat)
        expert_mask = F.one_hot(selected, NUM_EXPERTS).permute(2, 1, 0)
        for i, expert in enumerate(self.experts):
            slot, token = torch.where(expert_mask[i])
            current = expert(flat[token]) * weights[token, slot, None]  # <- topk_renorm router_detach
            out.index_add_(0, token, current)
        return out.view(b, t, d), router_logits


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = nn.LayerNorm(HIDDEN)
        self.attn = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
        self.moe_norm = nn.LayerNorm(HIDDEN)
        self.moe = SparseMoeBlock()

    def forward(self, x, mask):
        h = self.attn_norm(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        y, router_logits = self.moe(self.moe_norm(x))
        return x + y, router_logits


def load_balancing_loss(gate_logits):
    probs = torch.cat(gate_logits).softmax(-1)
    selected = torch.topk(probs, TOP_K, dim=-1).indices  # <- aux_top1
    expert_mask = F.one_hot(selected, NUM_EXPERTS).float()
    tokens_per_expert = expert_mask.mean(0)  # <- aux_top1
    router_prob_per_expert = probs.mean(0)
    return NUM_EXPERTS * torch.sum(tokens_per_expert * router_prob_per_expert.unsqueeze(0))  # <- aux_top1


class MoeForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.pos = nn.Embedding(SEQ, HIDDEN)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB)
        for layer in self.layers:
            nn.init.normal_(layer.moe.gate.weight, std=0.5)
            nn.init.normal_(layer.attn.in_proj_bias, std=0.1)

    def forward(self, ids, labels):
        x = self.embed(ids) + self.pos(torch.arange(ids.shape[1]))
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        all_logits = []
        for layer in self.layers:
            x, router_logits = layer(x, mask)
            all_logits.append(router_logits)
        ce = F.cross_entropy(self.lm_head(self.norm(x)).flatten(0, 1), labels.flatten())
        return ce + AUX_COEF * load_balancing_loss(all_logits)


torch.manual_seed(21)
model = MoeForCausalLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-3)  # <- bias_correction

torch.manual_seed(8)
data = torch.randint(0, VOCAB, (5 * ACCUM, 4, SEQ + 1))
losses = []
for step in range(5):
    total = 0.0
    for micro in range(ACCUM):
        batch = data[step * ACCUM + micro]
        loss = model(batch[:, :-1], batch[:, 1:]) / ACCUM  # <- accum_scale
        loss.backward()  # <- accum_scale
        total += loss.item()
    optimizer.step()  # <- bias_correction
    optimizer.zero_grad()
    losses.append(total)
print(losses)
