# SPDX-License-Identifier: Apache-2.0
"""The BERT with q, k and v in one projection and torch's fused attention; the rest as it was."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

VOCAB, HIDDEN, HEADS, LAYERS, LENGTH, INNER = 40, 24, 4, 2, 9, 48


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=0)
        self.position_embeddings = nn.Embedding(LENGTH, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, input_ids, token_type_ids):
        words = self.word_embeddings(input_ids)
        places = self.position_embeddings(torch.arange(LENGTH))  # <- offset
        embeddings = words + self.token_type_embeddings(token_type_ids)  # <- types
        embeddings = embeddings + places  # <- offset
        return self.LayerNorm(embeddings)


class BertSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)

    def heads(self, x):
        return x.view(x.size(0), LENGTH, HEADS, HIDDEN // HEADS).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        q, k, v = (self.heads(part) for part in self.qkv(hidden_states).chunk(3, dim=-1))
        context = functional.scaled_dot_product_attention(q, k, v, attention_mask)  # <- padding
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(*context.shape[:2], HIDDEN)


class BertOutput(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.dense = nn.Linear(inner, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, hidden_states, input_tensor):
        return self.LayerNorm(self.dense(hidden_states) + input_tensor)  # <- pre_norm bias


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self = BertSelfAttention()
        self.attention_output = BertOutput(HIDDEN)
        self.intermediate = nn.Linear(HIDDEN, INNER)
        self.output = BertOutput(INNER)

    def forward(self, hidden_states, attention_mask):
        attended = self.self(hidden_states, attention_mask)  # <- pre_norm
        attended = self.attention_output(attended, hidden_states)
        intermediate = functional.gelu(self.intermediate(attended))  # <- gelu
        return self.output(intermediate, attended)


class BertForMaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.transform = nn.Linear(HIDDEN, HIDDEN)
        self.transform_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.decoder = nn.Linear(HIDDEN, VOCAB)
        self.decoder.weight = self.embeddings.word_embeddings.weight

    def forward(self, input_ids, token_type_ids, attention_mask, labels):
        extended = attention_mask[:, None, None, :].float()
        extended = (1.0 - extended) * torch.finfo(torch.float32).min  # <- padding
        hidden = self.embeddings(input_ids, token_type_ids)  # <- types
        for layer in self.layer:
            hidden = layer(hidden, extended)
        hidden = self.transform_norm(functional.gelu(self.transform(hidden)))
        scores = self.decoder(hidden).view(-1, VOCAB)
        return functional.cross_entropy(scores, labels.view(-1), ignore_index=-100)  # <- ignored


model = BertForMaskedLM()
state = torch.load(sys.argv[1])
for number in range(LAYERS):
    for kind in ("weight", "bias"):
        parts = [state.pop(f"layer.{number}.self.{p}.{kind}") for p in ("query", "key", "value")]
        state[f"layer.{number}.self.qkv.{kind}"] = torch.cat(parts)
model.load_state_dict(state)
no_decay = ("bias", "LayerNorm.weight", "norm.weight")
groups = [[], []]
for name, parameter in model.named_parameters():
    groups[name.endswith(no_decay)].append(parameter)
optimizer = torch.optim.AdamW(
    [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}],
    lr=2e-3,
)
rng = np.random.default_rng(2)
losses = []
for _ in range(2):
    ids = rng.integers(1, VOCAB, (4, LENGTH))
    lengths = rng.integers(5, LENGTH + 1, (4, 1))
    mask = np.arange(LENGTH) < lengths
    ids[~mask] = 0
    labels = np.where((rng.random(ids.shape) < 0.4) & mask, ids, -100)
    types = (np.arange(LENGTH) >= 4).astype(np.int64) * mask
    inputs = [torch.from_numpy(array) for array in (ids, types, mask, labels)]
    optimizer.zero_grad()
    loss = model(*inputs)
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
