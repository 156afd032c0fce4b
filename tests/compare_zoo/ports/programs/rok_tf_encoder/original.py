# SPDX-License-Identifier: Apache-2.0
"""Transformer encoder for padded token sequences, class-weighted loss, AdamW."""
import sys

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

VOCAB, MAXLEN, DIM, HEADS, CLASSES, PAD = 40, 10, 24, 3, 4, 0


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.linear1 = nn.Linear(DIM, 2 * DIM)
        self.linear2 = nn.Linear(2 * DIM, DIM)
        self.norm1 = nn.LayerNorm(DIM)  # <- norm_epsilon
        self.norm2 = nn.LayerNorm(DIM)

    def forward(self, x, pad_mask):
        y = self.norm1(x)  # <- norm_epsilon
        y, _ = self.self_attn(y, y, y, key_padding_mask=pad_mask, need_weights=False)  # <- padding_attended
        x = x + y
        y = self.norm2(x)
        return x + self.linear2(torch.relu(self.linear1(y)))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(1, MAXLEN, DIM) * 0.1)
        self.layers = nn.ModuleList([EncoderLayer()])
        self.out = nn.Linear(DIM, CLASSES)
        nn.init.normal_(self.tok.weight, std=0.1)

    def forward(self, ids):
        pad_mask = ids == PAD  # <- padding_attended
        x = self.tok(ids) + self.pos[:, :ids.shape[1]]
        for layer in self.layers:
            x = layer(x, pad_mask)
        keep = (~pad_mask).unsqueeze(-1).float()
        pooled = (x * keep).sum(1) / keep.sum(1)  # <- mean_over_padding
        return self.out(pooled)


def make_batch(rng):
    ids = rng.randint(1, VOCAB, size=(8, MAXLEN))
    lengths = rng.randint(3, MAXLEN + 1, size=8)
    for row, n in zip(ids, lengths):
        row[n:] = PAD
    return torch.from_numpy(ids), torch.from_numpy(rng.randint(0, CLASSES, size=8))


torch.manual_seed(2)
model = Classifier()
np.savez(sys.argv[1], **{k: v.numpy() for k, v in model.state_dict().items()})
criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.0, 1.5]))  # <- weights_not_normalised
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.01)  # <- beta2_default

rng = np.random.RandomState(31)
losses = []
for _ in range(4):
    ids, labels = make_batch(rng)
    loss = criterion(model(ids), labels)  # <- weights_not_normalised
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- beta2_default
    losses.append(loss.item())
print(losses)
