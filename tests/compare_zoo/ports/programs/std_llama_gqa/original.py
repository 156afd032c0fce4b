# SPDX-License-Identifier: Apache-2.0
"""Small Llama-style decoder (grouped-query attention, rotate_half RoPE), trained with AdamW."""

import sys

import torch
from torch import nn


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-5):  # <- eps
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps  # <- eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)  # <- eps
        return self.weight * hidden_states


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def repeat_kv(hidden_states, n_rep):
    b, kv, s, d = hidden_states.shape
    hidden_states = hidden_states[:, :, None].expand(b, kv, n_rep, s, d)  # <- groups
    return hidden_states.reshape(b, kv * n_rep, s, d)  # <- groups


class LlamaAttention(nn.Module):
    def __init__(self, hidden, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, mask, cos, sin):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, self.heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(b, s, self.kv_heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(b, s, self.kv_heads, -1).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        k = repeat_kv(k, self.heads // self.kv_heads)  # <- groups
        v = repeat_kv(v, self.heads // self.kv_heads)  # <- groups
        weights = torch.matmul(q, k.transpose(2, 3)) / self.head_dim**0.5 + mask  # <- groups
        weights = nn.functional.softmax(weights, dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, s, -1))


class LlamaMLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))  # <- gate


class DecoderLayer(nn.Module):
    def __init__(self, hidden=32, heads=4, kv_heads=2, inner=48):
        super().__init__()
        self.self_attn = LlamaAttention(hidden, heads, kv_heads)
        self.mlp = LlamaMLP(hidden, inner)
        self.input_layernorm = LlamaRMSNorm(hidden)
        self.post_attention_layernorm = LlamaRMSNorm(hidden)

    def forward(self, x, mask, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), mask, cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaForCausalLM(nn.Module):
    def __init__(self, vocab=61, hidden=32, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.1)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.norm = LlamaRMSNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids, labels):
        s = input_ids.shape[1]
        inv_freq = 1.0 / (500.0 ** (torch.arange(0, 8, 2).float() / 8))  # <- base
        freqs = torch.outer(torch.arange(s).float(), inv_freq)  # <- base
        emb = torch.cat((freqs, freqs), dim=-1)
        mask = torch.full((s, s), float("-inf")).triu(1)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, mask, emb.cos(), emb.sin())
        logits = self.lm_head(self.norm(x))
        return nn.functional.cross_entropy(
            logits[:, :-1].reshape(-1, 61), labels[:, 1:].reshape(-1), ignore_index=-100
        )


torch.manual_seed(0)
model = LlamaForCausalLM()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)  # <- decay
data, losses = torch.Generator().manual_seed(7), []
for step in range(4):
    ids = torch.randint(0, 61, (3, 12), generator=data)
    loss = model(ids, ids.masked_fill(ids == 5, -100))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
print(losses)
