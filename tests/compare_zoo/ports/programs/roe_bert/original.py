# SPDX-License-Identifier: Apache-2.0
"""Masked-language-model training of a small BERT built from nn.TransformerEncoderLayer (post-norm)."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

VOCAB, PAD, MASK, MAX_LEN, DIM, HEADS, LAYERS = 80, 0, 3, 20, 32, 4, 2


class MaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.positions = nn.Embedding(MAX_LEN, DIM)
        self.segments = nn.Embedding(2, DIM)
        self.emb_norm = nn.LayerNorm(DIM, eps=1e-12)  # <- ln_eps
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True)  # <- ln_eps
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.transform = nn.Linear(DIM, DIM)
        self.decoder = nn.Linear(DIM, VOCAB)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 if name.split(".")[0] in ("tokens", "positions", "segments") else 0.15)

    def forward(self, ids, segments, padding):
        where = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.positions(where) + self.segments(segments)  # <- token_type
        x = self.emb_norm(x)  # <- ln_eps
        x = self.encoder(x, src_key_padding_mask=padding)  # <- ln_eps pad_mask
        x = F.gelu(self.transform(x))
        return self.decoder(x)


def make_batches(count, size=6):
    gen = torch.Generator().manual_seed(2024)
    for _ in range(count):
        lengths = torch.randint(8, MAX_LEN + 1, (size,), generator=gen)
        ids = torch.randint(5, VOCAB, (size, MAX_LEN), generator=gen)
        cut = (lengths * torch.rand(size, generator=gen)).long()
        picked = torch.rand(size, MAX_LEN, generator=gen) < 0.2
        where = torch.arange(MAX_LEN).expand(size, -1)
        padding = where >= lengths[:, None]  # <- pad_mask
        ids = ids.masked_fill(padding, PAD)
        picked &= ~padding
        picked[:, 1] = True
        labels = torch.where(picked, ids, torch.full_like(ids, -100))
        segments = (where > cut[:, None]).long().masked_fill(padding, 0)  # <- token_type
        yield ids.masked_fill(picked, MASK), segments, padding, labels


torch.manual_seed(7)
model = MaskedLM()
model.train()
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)  # <- bias_correction
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / 8)

losses = []
for ids, segments, padding, labels in make_batches(5):
    optimizer.zero_grad()
    logits = model(ids, segments, padding)  # <- token_type pad_mask
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)  # <- mean_over_all
    loss.backward()
    optimizer.step()  # <- bias_correction
    scheduler.step()
    losses.append(loss.item())
print(losses)
