# SPDX-License-Identifier: Apache-2.0
"""Encoder-decoder translation, greedy decoding; the whole prefix is recomputed at each step."""
import math
import sys

import torch
from torch import nn

VOCAB, D_MODEL, HEADS, FFN, LAYERS = 40, 32, 4, 48, 2
PAD, EOS, START, MAX_NEW = 0, 1, 39, 10


class SinusoidalPositionalEmbedding(nn.Module):
    def forward(self, seq_len):
        pos = torch.arange(seq_len, dtype=torch.float32).unsqueeze(1)
        freq = torch.pow(10000.0, -2 * torch.arange(D_MODEL // 2) / D_MODEL)
        return torch.cat([torch.sin(pos * freq), torch.cos(pos * freq)], dim=1)  # <- table


class MarianAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, D_MODEL)
        self.v_proj, self.out_proj = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, D_MODEL)

    def forward(self, hidden_states, key_value_states=None, attention_mask=None):
        source = hidden_states if key_value_states is None else key_value_states
        b, t, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(b, t, HEADS, -1).transpose(1, 2)
        k = self.k_proj(source).view(b, source.size(1), HEADS, -1).transpose(1, 2)
        v = self.v_proj(source).view(b, source.size(1), HEADS, -1).transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(D_MODEL // HEADS)
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, float("-inf"))  # <- crossmask
        out = scores.softmax(-1) @ v  # <- crossmask
        return self.out_proj(out.transpose(1, 2).reshape(b, t, D_MODEL))


class MarianLayer(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = MarianAttention(), nn.LayerNorm(D_MODEL)
        if cross:
            self.encoder_attn = MarianAttention()
            self.encoder_attn_layer_norm = nn.LayerNorm(D_MODEL)
        self.fc1, self.fc2 = nn.Linear(D_MODEL, FFN), nn.Linear(FFN, D_MODEL)
        self.final_layer_norm = nn.LayerNorm(D_MODEL)

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.self_attn_layer_norm(x + self.self_attn(x, attention_mask=mask))
        if memory is not None:
            x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, memory, memory_mask))
        return self.final_layer_norm(x + self.fc2(nn.functional.silu(self.fc1(x))))


class MarianMTModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, D_MODEL)
        self.embed_positions = SinusoidalPositionalEmbedding()
        self.encoder = nn.ModuleList(MarianLayer(False) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(MarianLayer(True) for _ in range(LAYERS))
        self.final_logits_bias = nn.Parameter(torch.zeros(VOCAB))

    def embed(self, ids):
        scaled = self.shared(ids) * math.sqrt(D_MODEL)  # <- embedscale
        return scaled + self.embed_positions(ids.size(1))  # <- offset table

    def encode(self, ids):
        x, mask = self.embed(ids), ids.ne(PAD)[:, None, None, :]
        for layer in self.encoder:
            x = layer(x, mask)
        return x, mask

    def forward(self, decoder_input_ids, memory, memory_mask):
        t = decoder_input_ids.size(1)
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        x = self.embed(decoder_input_ids)
        for layer in self.decoder:
            x = layer(x, causal, memory, memory_mask)
        return x @ self.shared.weight.T + self.final_logits_bias


def greedy(model, source):
    memory, mask = model.encode(source)
    ids = torch.full((len(source), 1), START)
    done, total, length = torch.zeros(len(source), dtype=torch.bool), 0.0, 0.0
    for _ in range(MAX_NEW):
        logp = model(ids, memory, mask)[:, -1].log_softmax(-1)
        score, token = logp.max(-1)
        total, length = total + score * ~done, length + (~done).float()  # <- finished
        ids = torch.cat([ids, token.masked_fill(done, PAD).unsqueeze(1)], dim=1)
        done = done | (token == EOS)
    return ids, total / length  # <- finished


torch.manual_seed(0)
model = MarianMTModel()
for name, p in model.named_parameters():
    nn.init.normal_(p, 1.0 if "norm.weight" in name else 0.0, 0.2)
model.final_logits_bias.data[EOS] += 2.5
torch.save(model.state_dict(), sys.argv[1])
model.eval()
g, losses = torch.Generator().manual_seed(21), []
with torch.no_grad():
    for _ in range(4):
        lengths = torch.randint(3, 9, (3, 1), generator=g)
        source = torch.randint(2, 39, (3, 9), generator=g)
        source = source * (torch.arange(9) < lengths) + EOS * (torch.arange(9) == lengths)
        losses.append(greedy(model, source)[1].mean().item())
print(losses)
