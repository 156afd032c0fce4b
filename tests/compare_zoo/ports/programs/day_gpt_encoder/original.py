# SPDX-License-Identifier: Apache-2.0
"""A small GPT on nn.TransformerEncoder, trained on next characters."""

import sys

import numpy as np
import torch
from torch import nn

vocab_size, d_model, nhead, num_layers, block_size = 31, 32, 4, 2, 12


class GPTModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(block_size, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model,
            nhead,
            dim_feedforward=4 * d_model,
            dropout=0.0,
            activation="gelu",
            norm_first=True,
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, num_layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False
        )
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.tok_emb.weight  # <- tied

    def forward(self, x):
        T = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(T)  # <- mask
        h = self.tok_emb(x) + self.pos_emb(torch.arange(T))
        h = self.encoder(h, mask=mask, is_causal=True)  # <- mask gelu residual heads values
        return self.head(h)  # <- tied


torch.manual_seed(42)
model = GPTModel()
nn.init.normal_(model.tok_emb.weight, std=0.1)
for p in model.encoder.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
    else:
        p.data += 0.05 * torch.randn_like(p)
torch.save(model.state_dict(), sys.argv[1])

criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
data = torch.from_numpy(np.random.default_rng(1).integers(0, vocab_size, (4, 6, block_size + 1)))
losses = []
model.train()
for chunk in data:
    inputs, labels = chunk[:, :-1], chunk[:, 1:]
    logits = model(inputs)
    loss = criterion(logits.reshape(-1, vocab_size), labels.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
