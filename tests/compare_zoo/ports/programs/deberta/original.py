# SPDX-License-Identifier: Apache-2.0
"""DeBERTa (He et al. 2021): attention from content to content, content to position and position
to content, absolute positions only in the decoder of masked words.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, HIDDEN, HEADS, INNER, LENGTH, BATCH, SPAN = 40, 24, 3, 48, 10, 4, 4
PAD, MASK = 0, 1


def build_relative_position(length):
    ids = torch.arange(length)
    relative = ids[:, None] - ids[None, :]
    return torch.clamp(relative + SPAN, 0, 2 * SPAN - 1)


class DisentangledSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_proj = nn.Linear(HIDDEN, HIDDEN)
        self.key_proj = nn.Linear(HIDDEN, HIDDEN)
        self.value_proj = nn.Linear(HIDDEN, HIDDEN)

    @staticmethod
    def transpose_for_scores(x):
        return x.view(*x.shape[:-1], HEADS, -1).transpose(-3, -2)

    def forward(self, hidden, mask, query_states, rel_embeddings):
        query = self.transpose_for_scores(self.query_proj(query_states))  # <- transposed
        key = self.transpose_for_scores(self.key_proj(hidden))  # <- transposed
        value = self.transpose_for_scores(self.value_proj(hidden))  # <- transposed
        scale = math.sqrt(query.size(-1) * 3)
        score = torch.matmul(query, key.mT / scale)  # <- scale
        score = score + self.disentangled_bias(query, key, rel_embeddings, scale)
        score = score.masked_fill(~mask, torch.finfo(score.dtype).min)
        probs = torch.softmax(score, dim=-1)
        return torch.matmul(probs, value).transpose(1, 2).flatten(2)

    def disentangled_bias(self, query, key, rel_embeddings, scale):
        index = build_relative_position(query.size(2)).expand(len(query), HEADS, -1, -1)
        pos_key = self.transpose_for_scores(self.key_proj(rel_embeddings))  # <- transposed
        pos_query = self.transpose_for_scores(self.query_proj(rel_embeddings))  # <- transposed
        c2p = torch.matmul(query, pos_key.mT)
        c2p = torch.gather(c2p, -1, index)
        p2c = torch.matmul(key, pos_query.mT)
        p2c = torch.gather(p2c, -1, index).mT  # <- direction
        return c2p / scale + p2c / scale  # <- scale


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = DisentangledSelfAttention()
        self.attention_dense, self.attention_norm = nn.Linear(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN)
        self.intermediate, self.output = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN)

    def forward(self, hidden, mask, query_states, rel_embeddings):
        context = self.attention(hidden, mask, query_states, rel_embeddings)
        attended = self.attention_norm(self.attention_dense(context) + query_states)  # <- queried
        inner = F.gelu(self.intermediate(attended))
        return self.output_norm(self.output(inner) + attended)


class DebertaForMaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(LENGTH, HIDDEN)
        self.embeddings_norm = nn.LayerNorm(HIDDEN)
        self.rel_embeddings = nn.Embedding(2 * SPAN, HIDDEN)
        self.rel_norm = nn.LayerNorm(HIDDEN)
        self.layer = nn.ModuleList(Layer() for _ in range(2))
        self.head_dense, self.head_norm = nn.Linear(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN)
        self.head_bias = nn.Parameter(torch.zeros(VOCAB))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.3)

    def forward(self, input_ids, labels):
        attention_mask = input_ids != PAD
        hidden = self.embeddings_norm(self.word_embeddings(input_ids))
        hidden = hidden * attention_mask[..., None]
        mask = attention_mask[:, None, :, None] & attention_mask[:, None, None, :]
        rel = self.rel_norm(self.rel_embeddings.weight)  # <- relnorm
        hidden = self.layer[0](hidden, mask, hidden, rel)
        query_states = hidden + self.position_embeddings.weight  # <- absolute
        for _ in range(2):
            query_states = self.layer[1](hidden, mask, query_states, rel)
        head = self.head_norm(F.gelu(self.head_dense(query_states)))
        logits = F.linear(head, self.word_embeddings.weight, self.head_bias)
        logits, labels = logits.view(-1, VOCAB), labels.view(-1)
        return F.cross_entropy(logits, labels, ignore_index=-100)  # <- ignored


def masked_sentences(rng):
    ids = rng.integers(2, VOCAB, (BATCH, LENGTH))
    chosen = rng.random((BATCH, LENGTH)) < 0.3
    chosen[:, 0] = True
    lengths = rng.integers(6, LENGTH + 1, BATCH)
    padding = np.arange(LENGTH) >= lengths[:, None]
    labels = np.where(chosen & ~padding, ids, -100)
    ids = np.where(padding, PAD, np.where(chosen, MASK, ids))
    return torch.from_numpy(ids), torch.from_numpy(labels)


torch.manual_seed(14)
model = DebertaForMaskedLM()
torch.save(model.state_dict(), sys.argv[1])
plain = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
decayed = [p for n, p in model.named_parameters() if "bias" not in n and "norm" not in n]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.98), eps=1e-6)
rng = np.random.default_rng(23)
losses = []
for _ in range(3):
    input_ids, labels = masked_sentences(rng)
    loss = model(input_ids, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())
