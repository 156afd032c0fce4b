# SPDX-License-Identifier: Apache-2.0
"""A small BERT-like sentence classifier (post-norm encoder, padding mask) trained with BertAdam."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, HIDDEN, HEADS, INNER, LAYERS, MAX_LEN, CLASSES = 50, 32, 4, 64, 2, 12, 4


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.position_embeddings = nn.Embedding(MAX_LEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN)  # <- norm_eps

    def forward(self, ids, types):
        x = self.word_embeddings(ids) + self.token_type_embeddings(types)  # <- types
        x = x + self.position_embeddings.weight[: ids.size(1)]
        return self.LayerNorm(x)  # <- norm_eps


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.output = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN)
        self.intermediate = nn.Linear(HIDDEN, INNER)
        self.dense = nn.Linear(INNER, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN)

    def heads(self, x):
        return x.view(x.size(0), x.size(1), HEADS, -1).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS)
        scores = scores + mask  # <- mask
        mixed = F.softmax(scores, dim=-1) @ v
        x = self.attention_norm(x + self.output(mixed.transpose(1, 2).reshape(x.shape)))
        return self.output_norm(x + self.dense(F.gelu(self.intermediate(x))))  # <- gelu


class BertClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.encoder = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.classifier = nn.Linear(HIDDEN, CLASSES)

    def forward(self, ids, types, attention_mask):
        mask = (1.0 - attention_mask[:, None, None, :]) * -10000.0  # <- mask
        x = self.embeddings(ids, types)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class BertAdam:
    """Adam of the BERT paper: no correction of the bias, decay beside the gradient."""

    def __init__(self, params, lr, decay, betas=(0.9, 0.999), eps=1e-6):
        self.params, self.lr, self.decay, self.betas, self.eps = params, lr, decay, betas, eps
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self):
        for p, m, v in zip(self.params, self.m, self.v):
            m.mul_(self.betas[0]).add_(p.grad, alpha=1 - self.betas[0])
            v.mul_(self.betas[1]).addcmul_(p.grad, p.grad, value=1 - self.betas[1])
            update = m / (v.sqrt() + self.eps)  # <- adam
            if p.ndim > 1:
                update = update + self.decay * p  # <- adam
            p.sub_(self.lr * update)  # <- adam
            p.grad = None


torch.manual_seed(1)
model = BertClassifier()
for p in model.parameters():
    if p.ndim > 1:
        nn.init.normal_(p, std=0.008 if p.size(1) == HIDDEN and p.size(0) in (2, 12, 50) else 0.35)
np.savez(sys.argv[1], **{k: v.detach().numpy() for k, v in model.named_parameters()})

optimizer = BertAdam(list(model.parameters()), lr=3e-3, decay=0.01)  # <- adam
random = np.random.RandomState(7)
losses = []
for _ in range(4):
    ids = random.randint(1, VOCAB, (6, 10))
    length = random.randint(4, 11, (6, 1))
    attention_mask = torch.tensor((np.arange(10) < length).astype(np.float32))
    types = torch.tensor((np.arange(10) >= length // 2).astype(np.int64))
    target = torch.tensor(random.randint(0, CLASSES, 6))
    logits = model(torch.tensor(ids), types, attention_mask)
    loss = F.cross_entropy(logits, target)
    loss.backward()
    optimizer.step()  # <- adam
    losses.append(loss.item())
print(losses)
