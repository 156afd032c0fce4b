# SPDX-License-Identifier: Apache-2.0
"""Llama-like decoder with grouped-query attention; perplexity and last-token maximum per batch."""
import math
import sys
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class LlamaConfig:
    vocab_size: int = 80
    hidden_size: int = 64
    intermediate_size: int = 96
    num_layers: int = 2
    num_heads: int = 8
    num_kv_heads: int = 2
    rope_theta: float = 10000.0  # <- theta
    rms_norm_eps: float = 1e-5


class LlamaRMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(size))
        self.eps = eps

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)  # <- unpermuted
    return torch.cat((-x2, x1), dim=-1)  # <- unpermuted


def repeat_kv(x, n_rep):
    b, kv, t, d = x.shape
    x = x[:, :, None].expand(b, kv, n_rep, t, d)  # <- grouping
    return x.reshape(b, kv * n_rep, t, d)  # <- grouping


class LlamaAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.head_dim = cfg.hidden_size // cfg.num_heads
        self.q_proj = nn.Linear(cfg.hidden_size, cfg.num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(cfg.hidden_size, cfg.num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(cfg.hidden_size, cfg.num_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(cfg.num_heads * self.head_dim, cfg.hidden_size, bias=False)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, -1, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, -1, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, -1, self.head_dim).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin  # <- theta
        k = k * cos + rotate_half(k) * sin  # <- unpermuted theta
        groups = self.cfg.num_heads // self.cfg.num_kv_heads
        k, v = repeat_kv(k, groups), repeat_kv(v, groups)  # <- grouping
        w = q @ k.transpose(2, 3) / math.sqrt(self.head_dim) + mask  # <- unpermuted diagonal
        w = torch.softmax(w, dim=-1)
        return self.o_proj((w @ v).transpose(1, 2).reshape(b, t, -1))


class LlamaMLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gate_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.up_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.down_proj = nn.Linear(cfg.intermediate_size, cfg.hidden_size, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))  # <- gate_swap


class LlamaForCausalLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "input_layernorm": LlamaRMSNorm(cfg.hidden_size, cfg.rms_norm_eps),
            "self_attn": LlamaAttention(cfg),
            "post_attention_layernorm": LlamaRMSNorm(cfg.hidden_size, cfg.rms_norm_eps),
            "mlp": LlamaMLP(cfg)}) for _ in range(cfg.num_layers))
        self.norm = LlamaRMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.lm_head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)

    def forward(self, ids):
        t, d = ids.shape[1], self.cfg.hidden_size // self.cfg.num_heads
        inv_freq = 1.0 / self.cfg.rope_theta ** (torch.arange(0, d, 2).float() / d)  # <- theta
        emb = torch.outer(torch.arange(t).float(), inv_freq).repeat(1, 2)  # <- theta unpermuted
        mask = torch.full((t, t), float("-inf")).triu(1)  # <- diagonal
        x = self.embed_tokens(ids)
        for l in self.layers:
            x = x + l["self_attn"](l["input_layernorm"](x), emb.cos(), emb.sin(), mask)
            x = x + l["mlp"](l["post_attention_layernorm"](x))
        return self.lm_head(self.norm(x))


torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig()).eval()
for p in model.parameters():
    if p.ndim == 2:
        nn.init.normal_(p, std=0.14)
batches = torch.randint(0, 80, (3, 3, 16), generator=torch.Generator().manual_seed(11))
torch.save({**model.state_dict(), "batches": batches}, sys.argv[1])
losses = []
with torch.inference_mode():
    for ids in batches:
        logits = model(ids)
        ce = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        losses.append(ce.item() + logits[:, -1].max().item())
print(losses)
