# SPDX-License-Identifier: Apache-2.0
"""A little Llama with grouped-query attention and cached rotary tables."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, N_HEADS, N_KV, HEAD_DIM, INTER, LAYERS, VOCAB, SEQ = 32, 4, 2, 8, 48, 2, 50, 14


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps  # <- rms_eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)  # <- rms_eps
        return self.weight * hidden_states


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, dim, max_positions, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))  # <- rope_table
        freqs = torch.outer(torch.arange(max_positions).float(), inv_freq)  # <- rope_table
        emb = torch.cat((freqs, freqs), dim=-1)
        self.register_buffer("cos_cached", emb.cos(), persistent=False)  # <- rope_table
        self.register_buffer("sin_cached", emb.sin(), persistent=False)  # <- rope_table

    def forward(self, seq_len):
        return self.cos_cached[:seq_len], self.sin_cached[:seq_len]


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin  # <- rope_table


def repeat_kv(hidden_states, n_rep):
    b, kv, s, d = hidden_states.shape
    hidden_states = hidden_states[:, :, None].expand(b, kv, n_rep, s, d)  # <- kv_groups
    return hidden_states.reshape(b, kv * n_rep, s, d)  # <- kv_groups


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, N_HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, N_KV * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, N_KV * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(N_HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, cos, sin, mask):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, N_HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(b, s, N_KV, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(b, s, N_KV, HEAD_DIM).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        k, v = repeat_kv(k, N_HEADS // N_KV), repeat_kv(v, N_HEADS // N_KV)  # <- kv_groups
        weights = torch.matmul(q, k.transpose(2, 3)) * HEAD_DIM ** -0.5 + mask  # <- kv_groups
        out = torch.matmul(F.softmax(weights, dim=-1), v)  # <- kv_groups
        return self.o_proj(out.transpose(1, 2).reshape(b, s, -1))


class LlamaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = LlamaAttention()
        self.gate_proj = nn.Linear(HIDDEN, INTER, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INTER, bias=False)
        self.down_proj = nn.Linear(INTER, HIDDEN, bias=False)
        self.input_layernorm = LlamaRMSNorm(HIDDEN)
        self.post_attention_layernorm = LlamaRMSNorm(HIDDEN)

    def forward(self, x, *rest):
        x = x + self.self_attn(self.input_layernorm(x), *rest)
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        nn.init.normal_(self.embed_tokens.weight, std=0.05)
        self.layers = nn.ModuleList(LlamaDecoderLayer() for _ in range(LAYERS))
        self.norm = LlamaRMSNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.rotary = LlamaRotaryEmbedding(HEAD_DIM, 32)

    def forward(self, ids):
        s = ids.shape[1]
        mask = torch.full((s, s), float("-inf")).triu(1)
        cos, sin = self.rotary(s)
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.norm(x))


torch.manual_seed(0)
model = Llama()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.95))  # <- beta_two
gen = torch.Generator().manual_seed(11)
losses = []
for _ in range(4):
    ids = torch.randint(3, VOCAB, (4, SEQ), generator=gen)
    prompt = torch.randint(2, 7, (4, 1), generator=gen)
    labels = ids.masked_fill(torch.arange(SEQ) < prompt, -100)  # <- prompt_mask
    logits = model(ids)[:, :-1]
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels[:, 1:].reshape(-1))  # <- prompt_mask
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- beta_two
    losses.append(loss.item())
print(losses)
