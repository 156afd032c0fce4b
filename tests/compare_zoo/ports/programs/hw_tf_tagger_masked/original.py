# SPDX-License-Identifier: Apache-2.0
"""Sequence tagging with nn.TransformerEncoder, padding mask, label smoothing and the Noam schedule."""
import math
import sys

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(40)

VOCAB, TAGS, D_MODEL, NHEAD, LAYERS, BATCH, PAD, WARMUP = 50, 7, 32, 4, 1, 8, 0, 3


class PositionalEncoding(nn.Module):
    def __init__(self, max_len=20):
        super().__init__()
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        pe = torch.zeros(max_len, D_MODEL)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return x + self.pe[:, :x.size(1)]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D_MODEL, padding_idx=PAD)
        self.pos = PositionalEncoding()
        layer = nn.TransformerEncoderLayer(D_MODEL, NHEAD, dim_feedforward=48, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(D_MODEL), enable_nested_tensor=False)
        self.classifier = nn.Linear(D_MODEL, TAGS)
        for p in self.encoder.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, tokens):
        x = self.pos(self.embed(tokens) * math.sqrt(D_MODEL))
        x = self.encoder(x, src_key_padding_mask=tokens == PAD)
        return self.classifier(x)


def make_batch(rng):
    lengths = rng.randint(5, 13, size=BATCH)
    tokens = np.zeros((BATCH, lengths.max()), dtype=np.int64)
    tags = np.full_like(tokens, -100)
    for row, n in enumerate(lengths):
        words = rng.randint(1, VOCAB, size=n)
        tokens[row, :n] = words
        tags[row, :n] = (words + np.roll(words, 1)) % TAGS
    return torch.from_numpy(tokens), torch.from_numpy(tags)


model = Tagger()
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
criterion = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
noam = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: 0.02 * D_MODEL ** -0.5 * min((s + 1) ** -0.5, (s + 1) * WARMUP ** -1.5))
rng = np.random.RandomState(9)
losses = []
for step in range(4):
    tokens, tags = make_batch(rng)
    logits = model(tokens)
    loss = criterion(logits.transpose(1, 2), tags)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.7)
    optimizer.step()
    noam.step()
    losses.append(loss.item())
print(losses)
