# SPDX-License-Identifier: Apache-2.0
"""ALBERT as Lan et al. (2019) have it: factorised embeddings, one layer used at every depth, a
masked language model and the order of the sentences.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, EMBEDDING, HIDDEN, HEADS, INTERMEDIATE, DEPTH = 61, 16, 32, 4, 64, 3
BATCH, LENGTH, PAD, MASK = 4, 14, 0, 4


class AlbertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, EMBEDDING)
        self.position_embeddings = nn.Embedding(LENGTH, EMBEDDING)
        self.token_type_embeddings = nn.Embedding(2, EMBEDDING)
        self.LayerNorm = nn.LayerNorm(EMBEDDING, eps=1e-12)

    def forward(self, input_ids, token_type_ids):
        embeddings = self.word_embeddings(input_ids)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings.weight[: input_ids.shape[1]]
        return self.LayerNorm(embeddings)  # <- eps


class AlbertAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.dense = nn.Linear(HIDDEN, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def split(self, x):
        return x.view(*x.shape[:2], HEADS, HIDDEN // HEADS).transpose(1, 2)

    def forward(self, hidden_states, attention_mask):
        q = self.split(self.query(hidden_states))  # <- transposed
        k = self.split(self.key(hidden_states))  # <- transposed
        v = self.split(self.value(hidden_states))  # <- transposed
        scores = q @ k.transpose(-1, -2)
        scores = scores / math.sqrt(HIDDEN // HEADS)  # <- scale
        probs = F.softmax(scores + attention_mask, dim=-1)  # <- padding
        context = (probs @ v).transpose(1, 2).flatten(2)
        return self.LayerNorm(hidden_states + self.dense(context))  # <- eps


class AlbertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = AlbertAttention()
        self.ffn = nn.Linear(HIDDEN, INTERMEDIATE)
        self.ffn_output = nn.Linear(INTERMEDIATE, HIDDEN)
        self.full_layer_layer_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, hidden_states, attention_mask):
        attended = self.attention(hidden_states, attention_mask)
        inner = F.gelu(self.ffn(attended), approximate="tanh")
        inner = self.ffn_output(inner)
        return self.full_layer_layer_norm(inner + attended)  # <- eps residual


class AlbertModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = AlbertEmbeddings()
        self.embedding_hidden_mapping_in = nn.Linear(EMBEDDING, HIDDEN)
        self.albert_layer = AlbertLayer()
        self.pooler = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, input_ids, token_type_ids):
        mask = (input_ids != PAD).float()[:, None, None, :]
        mask = (1.0 - mask) * torch.finfo(torch.float32).min  # <- padding
        hidden = self.embedding_hidden_mapping_in(self.embeddings(input_ids, token_type_ids))
        for _ in range(DEPTH):
            hidden = self.albert_layer(hidden, mask)
        return hidden, torch.tanh(self.pooler(hidden[:, 0]))


class AlbertForPreTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.albert = AlbertModel()
        self.dense = nn.Linear(HIDDEN, EMBEDDING)
        self.LayerNorm = nn.LayerNorm(EMBEDDING, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        self.sop_classifier = nn.Linear(HIDDEN, 2)
        self.apply(self.init)

    @staticmethod
    def init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.15)

    def forward(self, input_ids, token_type_ids):
        hidden, pooled = self.albert(input_ids, token_type_ids)
        h = F.gelu(self.dense(hidden), approximate="tanh")  # <- activation
        h = self.LayerNorm(h)  # <- eps
        scores = F.linear(h, self.albert.embeddings.word_embeddings.weight, self.bias)
        return scores, self.sop_classifier(pooled)


def make_batch(rng):
    tokens = rng.integers(5, VOCAB, (BATCH, LENGTH))
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, BATCH)
    real = np.arange(LENGTH) < lengths[:, None]
    tokens = np.where(real, tokens, PAD)
    segments = (np.arange(LENGTH) >= lengths[:, None] // 2) & real
    masked = (rng.random((BATCH, LENGTH)) < 0.3) & real
    labels = np.where(masked, tokens, -100)
    order = rng.integers(0, 2, BATCH)
    inputs = np.where(masked, MASK, tokens)
    return [torch.from_numpy(a) for a in (inputs, segments.astype(np.int64), labels, order)]


torch.manual_seed(11)
model = AlbertForPreTraining()
torch.save(model.state_dict(), sys.argv[1])
decayed = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() == 1]
groups = [
    {"params": decayed, "weight_decay": 0.01},
    {"params": others, "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.999), eps=1e-6)
rng = np.random.default_rng(12)
losses = []
for _ in range(3):
    input_ids, token_type_ids, labels, order = make_batch(rng)
    optimizer.zero_grad()
    scores, sop_scores = model(input_ids, token_type_ids)
    mlm_loss = F.cross_entropy(scores.view(-1, VOCAB), labels.view(-1))  # <- reduction
    sop_loss = F.cross_entropy(sop_scores, order)
    loss = mlm_loss + sop_loss
    loss.backward()
    optimizer.step()  # <- correction
    losses.append(loss.item())
