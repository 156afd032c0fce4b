# SPDX-License-Identifier: Apache-2.0
"""GPT-NeoX as the transformers library writes it: fused qkv, partial rotary."""
import sys
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

config = SimpleNamespace(vocab_size=53, hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
                         intermediate_size=96, rotary_pct=0.5, rotary_emb_base=10000,
                         layer_norm_eps=1e-5, max_position_embeddings=32)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-x2, x1), dim=-1)


class GPTNeoXRotaryEmbedding(nn.Module):
    def __init__(self, dim, base):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))  # <- rotary_table
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, seq_len):
        freqs = torch.outer(torch.arange(seq_len).float(), self.inv_freq)  # <- rotary_table
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos()[None, None], emb.sin()[None, None]


class GPTNeoXAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_size = config.hidden_size // self.num_heads
        self.rotary_ndims = int(self.head_size * config.rotary_pct)
        self.rotary_emb = GPTNeoXRotaryEmbedding(self.rotary_ndims, config.rotary_emb_base)
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        n = config.max_position_embeddings
        causal = torch.tril(torch.ones(n, n, dtype=torch.bool))
        self.register_buffer("bias", causal, persistent=False)

    def forward(self, hidden_states):
        bsz, seq, _ = hidden_states.shape
        qkv = self.query_key_value(hidden_states).view(bsz, seq, self.num_heads, 3 * self.head_size)
        query, key, value = (t.transpose(1, 2) for t in qkv.chunk(3, dim=-1))
        cos, sin = self.rotary_emb(seq)
        q_rot, q_pass = query[..., : self.rotary_ndims], query[..., self.rotary_ndims:]
        k_rot, k_pass = key[..., : self.rotary_ndims], key[..., self.rotary_ndims:]
        query = torch.cat((q_rot * cos + rotate_half(q_rot) * sin, q_pass), dim=-1)
        key = torch.cat((k_rot * cos + rotate_half(k_rot) * sin, k_pass), dim=-1)
        scores = torch.matmul(query, key.transpose(-1, -2)) * self.head_size ** -0.5
        scores = scores.masked_fill(~self.bias[:seq, :seq], torch.finfo(scores.dtype).min)
        attn = torch.matmul(F.softmax(scores, dim=-1), value)
        return self.dense(attn.transpose(1, 2).reshape(bsz, seq, -1))


class GPTNeoXLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = GPTNeoXAttention(config)
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_4h_to_h = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        attn_output = self.attention(self.input_layernorm(x))
        mlp_input = self.post_attention_layernorm(x)  # <- parallel_residual
        h = self.dense_h_to_4h(mlp_input)
        mlp_output = self.dense_4h_to_h(F.gelu(h))  # <- gelu_form
        return mlp_output + attn_output + x


class GPTNeoXForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_in = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(GPTNeoXLayer(config) for _ in range(config.num_hidden_layers))
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.embed_out = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids, labels):
        hidden = self.embed_in(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.embed_out(self.final_layer_norm(hidden))
        shift_logits, shift_labels = logits[:, :-1].contiguous(), labels[:, 1:].contiguous()
        return F.cross_entropy(shift_logits.view(-1, logits.size(-1)), shift_labels.view(-1))


torch.manual_seed(0)
model = GPTNeoXForCausalLM(config)
torch.save(model.state_dict(), sys.argv[1])
decay = [p for p in model.parameters() if p.ndim >= 2]  # <- decay_group
plain = [p for p in model.parameters() if p.ndim < 2]
groups = [{"params": decay, "weight_decay": 0.2},  # <- decay_group
          {"params": plain, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95), eps=1e-8)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 3))  # <- warmup
gen = torch.Generator().manual_seed(11)
losses = []
for step in range(4):
    ids = torch.randint(0, config.vocab_size, (3, 14), generator=gen)
    loss = model(ids, labels=ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay_group warmup
    warm.step()  # <- warmup
    losses.append(loss.item())
print(losses)
