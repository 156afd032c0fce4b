# SPDX-License-Identifier: Apache-2.0
"""A BERT-like classifier of padded sentences, trained with AdamW without decay of biases and norms."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, INNER, LAYERS, LENGTH, CLASSES = 60, 32, 4, 64, 2, 12, 4


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.dense = nn.Linear(WIDTH, WIDTH)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(~mask[:, None, None, :], -1e9)  # <- mask
        context = torch.softmax(scores, dim=-1) @ v  # <- mask
        return self.dense(context.transpose(1, 2).flatten(2))  # <- out_kernel


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.intermediate = nn.Linear(WIDTH, INNER)
        self.output = nn.Linear(INNER, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-5)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.output(F.gelu(self.intermediate(x))))  # <- gelu


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-5)  # <- norm_eps
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.classifier = nn.Linear(WIDTH, CLASSES)
        for module in (self.word, self.position):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids, mask):
        x = self.norm(self.word(ids) + self.position(torch.arange(ids.shape[1])))  # <- norm_eps
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


torch.manual_seed(11)
model = Classifier()
with torch.no_grad():
    for layer in model.layers:
        layer.intermediate.weight.mul_(8.0)
    model.classifier.weight.mul_(3.0)
np.savez(sys.argv[1], **{name: p.detach().numpy() for name, p in model.named_parameters()})

decayed, plain = [], []
for name, p in model.named_parameters():
    (plain if name.endswith("bias") or "norm" in name else decayed).append(p)  # <- no_decay
groups = [
    {"params": decayed, "weight_decay": 0.1},
    {"params": plain, "weight_decay": 0.0},
]  # <- no_decay
optimizer = torch.optim.AdamW(groups, lr=5e-3, eps=1e-6)  # <- no_decay
random = np.random.RandomState(12)
losses = []
for _ in range(4):
    ids = torch.from_numpy(random.randint(1, VOCAB, (8, LENGTH)))
    lengths = torch.from_numpy(random.randint(4, LENGTH + 1, (8,)))
    labels = torch.from_numpy(random.randint(0, CLASSES, (8,)))
    mask = torch.arange(LENGTH) < lengths[:, None]
    loss = F.cross_entropy(model(ids * mask, mask), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- no_decay
    losses.append(loss.item())
print(losses)
