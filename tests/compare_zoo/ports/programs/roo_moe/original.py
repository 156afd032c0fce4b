# SPDX-License-Identifier: Apache-2.0
"""Sparse mixture-of-experts language model: top-2 routing with capacity, experts run one by one."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(404)


class Config:
    vocab_size = 50
    hidden_size = 24
    intermediate_size = 32
    num_layers = 2
    num_heads = 2
    num_experts = 4
    capacity_factor = 1.0
    aux_coef = 0.2
    seq_len = 12
    batch_size = 4


class Expert(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.fc_in = nn.Linear(cfg.hidden_size, cfg.intermediate_size)
        self.fc_out = nn.Linear(cfg.intermediate_size, cfg.hidden_size)

    def forward(self, x):
        return self.fc_out(F.silu(self.fc_in(x)))


class SparseMoE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.gate = nn.Linear(cfg.hidden_size, cfg.num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(cfg) for _ in range(cfg.num_experts))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = F.softmax(self.gate(flat), dim=-1)
        top_w, top_i = torch.topk(probs, 2, dim=-1)
        top_w = top_w / top_w.sum(dim=-1, keepdim=True)  # <- gates_raw

        capacity = math.ceil(self.cfg.capacity_factor * 2 * len(flat) / self.cfg.num_experts)
        room = [capacity] * self.cfg.num_experts  # <- slot_overlap
        out = torch.zeros_like(flat)
        for choice in range(2):
            for e, expert in enumerate(self.experts):
                rows = torch.where(top_i[:, choice] == e)[0][:room[e]]  # <- slot_overlap
                room[e] -= len(rows)  # <- slot_overlap
                if len(rows):
                    gated = expert(flat[rows]) * top_w[rows, choice].unsqueeze(-1)  # <- gates_raw
                    out = out.index_add(0, rows, gated)

        density = F.one_hot(top_i[:, 0], self.cfg.num_experts).float().mean(0)
        aux = self.cfg.num_experts * torch.sum(density * probs.mean(0))  # <- aux_detached
        return out.view_as(x), aux


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.num_heads
        self.c_attn = nn.Linear(cfg.hidden_size, 3 * cfg.hidden_size)
        self.c_proj = nn.Linear(cfg.hidden_size, cfg.hidden_size)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.hidden_size)
        self.attn = CausalSelfAttention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.hidden_size)
        self.moe = SparseMoE(cfg)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        y, aux = self.moe(self.ln_2(x))
        return x + y, aux


class MoELanguageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.wpe = nn.Embedding(cfg.seq_len, cfg.hidden_size)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.num_layers))
        self.ln_f = nn.LayerNorm(cfg.hidden_size)
        self.lm_head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        all_aux = []
        for layer in self.layers:
            x, aux = layer(x)
            all_aux.append(aux)
        logits = self.lm_head(self.ln_f(x))
        ce = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return ce + self.cfg.aux_coef * torch.stack(all_aux).mean()  # <- aux_summed


def main():
    cfg = Config()
    model = MoELanguageModel(cfg)
    for layer in model.layers:
        nn.init.normal_(layer.moe.gate.weight, std=0.4)
    torch.save(model.state_dict(), sys.argv[1])

    generator = torch.Generator().manual_seed(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-7)  # <- no_bias_correction
    history = []
    for step in range(5):
        chunk = torch.randint(0, cfg.vocab_size, (cfg.batch_size, cfg.seq_len + 1), generator=generator)
        loss = model(chunk[:, :-1], chunk[:, 1:])  # <- aux_summed
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()  # <- no_bias_correction
        history.append(loss.item())
    return history


losses = main()
print(losses)
