# SPDX-License-Identifier: Apache-2.0
"""Qwen2-MoE in own code: fused attention of torch, a loop over experts, the balance by hand."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, DEPTH, HEADS, KV_HEADS, EXPERTS, CHOSEN = 37, 32, 2, 4, 2, 5, 2
EXPERT_DIM, SHARED_DIM, THETA, BALANCE = 20, 28, 1e6, 0.02
HEAD = DIM // HEADS


def angles(length):
    inverse = 1.0 / THETA ** (torch.arange(0, HEAD, 2).float() / HEAD)  # <- theta
    table = torch.outer(torch.arange(length).float(), inverse)
    return table.cos(), table.sin()  # <- theta


def turned(x, cos, sin):
    left, right = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)  # <- theta


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, DIM)
        self.wk, self.wv = nn.Linear(DIM, KV_HEADS * HEAD), nn.Linear(DIM, KV_HEADS * HEAD)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, cos, sin):
        n, t, _ = x.shape
        q = turned(self.wq(x).view(n, t, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = turned(self.wk(x).view(n, t, KV_HEADS, HEAD).transpose(1, 2), cos, sin)
        v = self.wv(x).view(n, t, KV_HEADS, HEAD).transpose(1, 2)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- repeat
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)  # <- repeat
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- repeat
        return self.wo(y.transpose(1, 2).reshape(n, t, DIM))


class SwiGlu(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.gate = nn.Linear(DIM, inner, bias=False)
        self.up = nn.Linear(DIM, inner, bias=False)
        self.down = nn.Linear(inner, DIM, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(SwiGlu(EXPERT_DIM) for _ in range(EXPERTS))
        self.shared, self.shared_gate = SwiGlu(SHARED_DIM), nn.Linear(DIM, 1, bias=False)

    def forward(self, x):
        tokens = x.reshape(-1, DIM)
        probs = self.router(tokens).softmax(-1)
        weights, picked = probs.topk(CHOSEN, dim=-1)  # <- renormed
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, slot = torch.where(picked == number)
            part = expert(tokens[token]) * weights[token, slot, None]  # <- renormed
            mixed = mixed.index_add(0, token, part)
        common = self.shared(tokens)
        common = torch.sigmoid(self.shared_gate(tokens)) * common  # <- shared
        return (mixed + common).view_as(x), probs, picked  # <- shared


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM, eps=1e-6), nn.RMSNorm(DIM, eps=1e-6)
        self.attention, self.mixture = Attention(), Mixture()

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y, probs, picked = self.mixture(self.norm2(x))
        return x + y, probs, picked


def balance(all_probs, all_picked):
    probs, picked = torch.cat(all_probs), torch.cat(all_picked)
    load = torch.bincount(picked.flatten(), minlength=EXPERTS) / len(picked)
    return EXPERTS * (load * probs.mean(0)).sum()


class QwenMoe(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(DIM, eps=1e-6), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        cos, sin = angles(ids.shape[1])
        all_probs, all_picked = [], []
        for layer in self.layers:
            x, probs, picked = layer(x, cos, sin)
            all_probs.append(probs)
            all_picked.append(picked)
        return self.head(self.norm(x)), balance(all_probs, all_picked)


RENAMED = (
    ("model.", ""),
    ("embed_tokens", "embed"),
    ("lm_head", "head"),
    ("input_layernorm", "norm1"),
    ("post_attention_layernorm", "norm2"),
    ("self_attn.q_proj", "attention.wq"),
    ("self_attn.k_proj", "attention.wk"),
    ("self_attn.v_proj", "attention.wv"),
    ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate.", "mixture.router."),
    ("mlp.shared_expert_gate", "mixture.shared_gate"),
    ("mlp.shared_expert.", "mixture.shared."),
    ("mlp.experts", "mixture.experts"),
    ("_proj.weight", ".weight"),
)


def taken_over(old):
    new = {}
    for full, value in old.items():
        name = full
        for theirs, mine in RENAMED:
            name = name.replace(theirs, mine)
        if "experts.gate_up" in name or "experts.down" in name:
            folder, part = name.rsplit(".", 1)
            for number, matrix in enumerate(value):
                if part == "down_proj":
                    new[f"{folder}.{number}.down.weight"] = matrix
                else:
                    gate, up = matrix.chunk(2)
                    new[f"{folder}.{number}.gate.weight"] = gate
                    new[f"{folder}.{number}.up.weight"] = up
        else:
            new[name] = value
    return new


net = QwenMoe()
net.load_state_dict(taken_over(torch.load(sys.argv[1])))
sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
rng = np.random.default_rng(13)
losses = []
for _ in range(3):
    sgd.zero_grad()
    parts = []
    for _ in range(2):
        ids = torch.tensor(rng.integers(0, VOCAB, (2, 10)))
        logits, unbalance = net(ids)
        text = F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss = text + BALANCE * unbalance  # <- coefficient
        (loss / 2).backward()  # <- accumulated
        parts.append(loss.item())
    sgd.step()  # <- accumulated
    losses.append(sum(parts) / 2)
