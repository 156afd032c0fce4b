# SPDX-License-Identifier: Apache-2.0
"""Sparse mixture-of-experts decoder (top-2 router, load balancing loss), experts as modules."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, FFN, EXPERTS, TOP_K, LAYERS, AUX_COEF = 29, 16, 2, 20, 4, 2, 2, 0.05


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]  # <- rotary_pairs
    return torch.cat((-x2, x1), dim=-1)  # <- rotary_pairs


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_dim = DIM // HEADS
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(DIM, DIM, bias=False))
        inv = 1.0 / (100.0 ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim))
        self.register_buffer("inv_freq", inv, persistent=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            p(x).view(b, t, HEADS, self.head_dim).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        freqs = torch.outer(torch.arange(t).float(), self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos(), emb.sin()
        q = q * cos + rotate_half(q) * sin  # <- rotary_pairs
        k = k * cos + rotate_half(k) * sin  # <- rotary_pairs
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- rotary_pairs
        return self.o_proj(y.transpose(1, 2).reshape(b, t, DIM))


class ExpertMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, FFN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- swiglu_halves


class SparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList([ExpertMLP() for _ in range(EXPERTS)])

    def forward(self, x):
        flat = x.view(-1, DIM)
        router_logits = self.gate(flat)
        routing, selected = torch.topk(F.softmax(router_logits, dim=-1), TOP_K, dim=-1)
        routing = routing / routing.sum(dim=-1, keepdim=True)  # <- gate_renorm
        out = torch.zeros_like(flat)
        for idx, expert in enumerate(self.experts):
            token, slot = torch.where(selected == idx)
            weighted = expert(flat[token]) * routing[token, slot, None]  # <- gate_renorm
            out = out.index_add(0, token, weighted)
        return out.view_as(x), router_logits


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.norms1 = nn.ModuleList([nn.RMSNorm(DIM, eps=1e-5) for _ in range(LAYERS)])
        self.attns = nn.ModuleList([Attention() for _ in range(LAYERS)])
        self.norms2 = nn.ModuleList([nn.RMSNorm(DIM, eps=1e-5) for _ in range(LAYERS)])
        self.moes = nn.ModuleList([SparseMoeBlock() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x, routers = self.embed(ids), []
        for n1, attn, n2, moe in zip(self.norms1, self.attns, self.norms2, self.moes):
            x = x + attn(n1(x))
            y, logits = moe(n2(x))
            x = x + y
            routers.append(logits)
        return self.lm_head(self.norm(x)), torch.cat(routers)


def load_balancing_loss(router_logits):
    probs = F.softmax(router_logits, dim=-1)
    mask = F.one_hot(torch.topk(probs, TOP_K, dim=-1).indices, EXPERTS)  # <- balance_counts
    tokens_per_expert = mask.float().mean(dim=0)  # <- balance_counts
    return (tokens_per_expert * probs.mean(dim=0).unsqueeze(0)).sum() * EXPERTS  # <- balance_counts


torch.manual_seed(0)
model = Decoder()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 3))  # <- warmup_start
gen = torch.Generator().manual_seed(5)
losses = []
for _ in range(4):
    ids = torch.randint(0, VOCAB, (3, 11), generator=gen)
    logits, routers = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss = loss + AUX_COEF * load_balancing_loss(routers)
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- warmup_start
    sched.step()  # <- warmup_start
    losses.append(loss.item())
print(losses)
