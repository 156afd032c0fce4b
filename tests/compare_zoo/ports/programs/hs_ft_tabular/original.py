# SPDX-License-Identifier: Apache-2.0
"""FT-Transformer for mixed numeric and categorical columns, two parameter groups."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)

CARDS, NUMERIC, D, HEADS, CLASSES = [7, 4, 11], 4, 12, 3, 3


class FeatureTokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.numeric_weight = nn.Parameter(torch.randn(NUMERIC, D) * D ** -0.5)
        self.numeric_bias = nn.Parameter(torch.randn(NUMERIC, D) * D ** -0.5)
        self.categorical = nn.ModuleList(nn.Embedding(card, D) for card in CARDS)
        self.categorical_bias = nn.Parameter(torch.randn(len(CARDS), D) * D ** -0.5)
        self.cls = nn.Parameter(torch.randn(1, 1, D) * D ** -0.5)

    def forward(self, numbers, codes):
        numeric = numbers.unsqueeze(-1) * self.numeric_weight + self.numeric_bias
        categorical = torch.stack([emb(codes[:, i]) for i, emb in enumerate(self.categorical)], 1)
        categorical = categorical + self.categorical_bias
        return torch.cat([self.cls.expand(len(numbers), -1, -1), numeric, categorical], 1)


class Layer(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.attention_norm = nn.Identity() if first else nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.ffn_norm = nn.LayerNorm(D)
        self.ffn_in = nn.Linear(D, 4 * D)
        self.ffn_out = nn.Linear(2 * D, D)

    def forward(self, x):
        h = self.attention_norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        a, gate = self.ffn_in(self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn_out(a * F.relu(gate))


class FTTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokenizer = FeatureTokenizer()
        self.layers = nn.ModuleList(Layer(i == 0) for i in range(2))
        self.head = nn.Sequential(nn.LayerNorm(D), nn.ReLU(), nn.Linear(D, CLASSES))

    def forward(self, numbers, codes):
        x = self.tokenizer(numbers, codes)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


model = FTTransformer()
torch.save(model.state_dict(), sys.argv[1])

no_decay, decay = [], []
for name, p in model.named_parameters():
    if name.startswith("tokenizer") or "norm" in name or name == "head.0.weight" or name.endswith("bias"):
        no_decay.append(p)
    else:
        decay.append(p)
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=3e-3)

g = torch.Generator().manual_seed(1)
numbers = torch.randn(64, NUMERIC, generator=g)
codes = torch.stack([torch.randint(0, card, (64,), generator=g) for card in CARDS], 1)
labels = ((numbers[:, 0] + codes[:, 1] - 1.5 > 0).long() + (codes[:, 2] > 6).long())
class_weight = torch.tensor([1.0, 0.7, 1.6])

losses = []
for epoch in range(2):
    order = torch.randperm(64, generator=g)
    for batch in order.split(24):
        logits = model(numbers[batch], codes[batch])
        loss = F.cross_entropy(logits, labels[batch], weight=class_weight, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

print(losses)
