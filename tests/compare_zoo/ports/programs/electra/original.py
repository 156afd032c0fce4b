# SPDX-License-Identifier: Apache-2.0
"""ELECTRA as Clark et al. (2020) have it: a small generator fills masked places, a discriminator finds
the words it replaced; both share the embeddings and learn together.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, EMBEDDING, GENERATOR, DISCRIMINATOR, HEADS = 30, 16, 12, 24, 2
BATCH, LENGTH, PAD, MASK, WEIGHT, WARMUP = 6, 14, 0, 3, 50.0, 10


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, EMBEDDING)
        self.position = nn.Embedding(LENGTH, EMBEDDING)
        self.norm = nn.LayerNorm(EMBEDDING, eps=1e-12)

    def forward(self, ids):
        return self.norm(self.word(ids) + self.position(torch.arange(LENGTH)))  # <- position


def make_encoder(width):
    layer = nn.TransformerEncoderLayer(
        width,
        HEADS,
        4 * width,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-12,
        batch_first=True,
    )
    return nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)


class Electra(nn.Module):
    def __init__(self, width, embeddings):
        super().__init__()
        self.embeddings = embeddings
        self.project = nn.Linear(EMBEDDING, width)
        self.encoder = make_encoder(width)

    def forward(self, ids):
        hidden = self.project(self.embeddings(ids))
        return self.encoder(hidden, src_key_padding_mask=ids == PAD)  # <- heads padding


class Generator(nn.Module):
    def __init__(self, embeddings):
        super().__init__()
        self.electra = Electra(GENERATOR, embeddings)
        self.dense = nn.Linear(GENERATOR, EMBEDDING)
        self.norm = nn.LayerNorm(EMBEDDING, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        hidden = self.norm(F.gelu(self.dense(self.electra(ids))))
        return F.linear(hidden, self.electra.embeddings.word.weight, self.bias)


class Discriminator(nn.Module):
    def __init__(self, embeddings):
        super().__init__()
        self.electra = Electra(DISCRIMINATOR, embeddings)
        self.dense = nn.Linear(DISCRIMINATOR, DISCRIMINATOR)
        self.dense_prediction = nn.Linear(DISCRIMINATOR, 1)

    def forward(self, ids):
        hidden = F.gelu(self.dense(self.electra(ids)))  # <- head
        return self.dense_prediction(hidden).squeeze(-1)


class ElectraForPreTraining(nn.Module):
    def __init__(self):
        super().__init__()
        embeddings = Embeddings()
        self.generator = Generator(embeddings)
        self.discriminator = Discriminator(embeddings)

    def forward(self, ids, masked, gumbel):
        logits = self.generator(torch.where(masked, MASK, ids))
        mlm_loss = F.cross_entropy(logits[masked], ids[masked])
        sampled = (logits.detach() + gumbel).argmax(-1)  # <- sampling
        corrupted = torch.where(masked, sampled, ids)
        labels = (corrupted != ids).float()  # <- replaced
        scores = self.discriminator(corrupted)
        real = ids != PAD
        disc_loss = F.binary_cross_entropy_with_logits(scores[real], labels[real])  # <- average
        return mlm_loss + WEIGHT * disc_loss


torch.manual_seed(61)
model = ElectraForPreTraining()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / WARMUP)
rng = np.random.default_rng(62)
losses = []
for _ in range(3):
    ids = rng.integers(4, VOCAB, (BATCH, LENGTH))
    ids[np.arange(LENGTH) >= rng.integers(8, LENGTH + 1, (BATCH, 1))] = PAD
    masked = torch.from_numpy((rng.random((BATCH, LENGTH)) < 0.35) & (ids != PAD))
    gumbel = torch.from_numpy(rng.gumbel(size=(BATCH, LENGTH, VOCAB)).astype(np.float32))
    optimizer.zero_grad()
    loss = model(torch.from_numpy(ids), masked, gumbel)
    loss.backward()
    optimizer.step()  # <- warmup
    scheduler.step()
    losses.append(loss.item())
