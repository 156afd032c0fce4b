# SPDX-License-Identifier: Apache-2.0
"""The same Llama in the manner of a hub's modelling files: halves turned against each other (rows
of the checkpoint put in that order), fused projections, scaled_dot_product_attention.
"""

import sys

import numpy as np
import torch
from torch import nn

CONFIG = {"vocab": 31, "hidden": 32, "heads": 4, "kv_heads": 2, "layers": 2, "inner": 48}
HEAD_DIM = CONFIG["hidden"] // CONFIG["heads"]
Q_ROWS, KV_ROWS = CONFIG["hidden"], CONFIG["kv_heads"] * HEAD_DIM


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = torch.square(hidden_states).mean(-1, keepdim=True)
        hidden_states = hidden_states / torch.sqrt(variance + self.variance_epsilon)  # <- eps
        return self.weight * hidden_states.to(dtype)


class RotaryEmbedding(nn.Module):
    def __init__(self, base=10000.0):
        super().__init__()
        inv_freq = base ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)  # <- theta
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @torch.no_grad()
    def forward(self, position_ids):
        freqs = position_ids[:, :, None].float() * self.inv_freq[None, None, :]  # <- theta
        emb = torch.cat((freqs, freqs), dim=-1)[:, None]  # <- theta
        return emb.cos(), emb.sin()  # <- theta


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)  # <- rotation
    return torch.cat((-x2, x1), dim=-1)  # <- rotation


def rotated(x, cos, sin):
    return x * cos + rotate_half(x) * sin  # <- rotation pairing


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_proj = nn.Linear(CONFIG["hidden"], Q_ROWS + 2 * KV_ROWS, bias=False)
        self.o_proj = nn.Linear(CONFIG["hidden"], CONFIG["hidden"], bias=False)

    def forward(self, hidden_states, cos, sin):
        b, s, _ = hidden_states.shape
        qkv = self.qkv_proj(hidden_states)  # <- pairing
        qkv = qkv.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
        heads, kv = CONFIG["heads"], CONFIG["kv_heads"]
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv], qkv[:, heads + kv :]
        q = rotated(q, cos, sin)  # <- rotation pairing
        k = rotated(k, cos, sin)  # <- rotation pairing
        k = k.repeat_interleave(heads // kv, dim=1)  # <- groups
        v = v.repeat_interleave(heads // kv, dim=1)  # <- groups
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        )  # <- causal groups scale
        return self.o_proj(mixed.transpose(1, 2).reshape(b, s, -1))


class LlamaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Linear(CONFIG["hidden"], 2 * CONFIG["inner"], bias=False)
        self.down_proj = nn.Linear(CONFIG["inner"], CONFIG["hidden"], bias=False)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)  # <- gate
        return self.down_proj(gate * torch.sigmoid(gate) * up)  # <- gate


class LlamaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(CONFIG["hidden"])
        self.self_attn = LlamaAttention()
        self.post_attention_layernorm = LlamaRMSNorm(CONFIG["hidden"])
        self.mlp = LlamaMLP()

    def forward(self, hidden_states, cos, sin):
        residual = hidden_states
        hidden_states = residual + self.self_attn(self.input_layernorm(residual), cos, sin)
        residual = hidden_states
        return residual + self.mlp(self.post_attention_layernorm(residual))


class LlamaModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab"], CONFIG["hidden"])
        self.layers = nn.ModuleList([LlamaDecoderLayer() for _ in range(CONFIG["layers"])])
        self.norm = LlamaRMSNorm(CONFIG["hidden"])
        self.rotary_emb = RotaryEmbedding()

    def forward(self, input_ids):
        hidden_states = self.embed_tokens(input_ids)
        position_ids = torch.arange(input_ids.shape[1]).unsqueeze(0)
        cos, sin = self.rotary_emb(position_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, cos, sin)
        return self.norm(hidden_states)


class LlamaForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = LlamaModel()
        self.lm_head = nn.Linear(CONFIG["hidden"], CONFIG["vocab"], bias=False)

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.model(input_ids)).flatten(0, 1)
        return nn.functional.nll_loss(logits.log_softmax(-1), labels.flatten())  # <- shift


def halves(weight):
    """Rows of a projection from neighbouring pairs to halves, head by head."""
    return (
        weight.view(-1, HEAD_DIM // 2, 2, CONFIG["hidden"]).transpose(1, 2).reshape_as(weight)
    )  # <- pairing


def convert(meta):
    state = {
        "model.embed_tokens.weight": meta["tok_embeddings.weight"],
        "model.norm.weight": meta["norm.weight"],
        "lm_head.weight": meta["output.weight"],
    }
    for n in range(CONFIG["layers"]):
        old, new = f"layers.{n}.", f"model.layers.{n}."
        query, key = (
            halves(meta[old + "attention.wq.weight"]),
            halves(meta[old + "attention.wk.weight"]),
        )
        value = meta[old + "attention.wv.weight"]
        state[new + "self_attn.qkv_proj.weight"] = torch.cat([query, key, value])
        state[new + "self_attn.o_proj.weight"] = meta[old + "attention.wo.weight"]
        gate, up = meta[old + "feed_forward.w1.weight"], meta[old + "feed_forward.w3.weight"]
        state[new + "mlp.gate_up_proj.weight"] = torch.cat([gate, up])
        state[new + "mlp.down_proj.weight"] = meta[old + "feed_forward.w2.weight"]
        state[new + "input_layernorm.weight"] = meta[old + "attention_norm.weight"]
        state[new + "post_attention_layernorm.weight"] = meta[old + "ffn_norm.weight"]
    return state


model = LlamaForCausalLM()
model.load_state_dict(convert(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=False)
data = np.random.default_rng(7).integers(0, CONFIG["vocab"], (3, 3, 13))
losses = []
for step in range(3):
    batch = torch.as_tensor(data[step])
    loss = model(batch[:, :-1], labels=batch[:, 1:])  # <- shift
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(float(loss))
