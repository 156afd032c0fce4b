# SPDX-License-Identifier: Apache-2.0
"""Bi-encoder passage retrieval: contrastive loss plus reciprocal rank of a query's own passage,
all scores of a batch in one matrix."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS, MAX, PAD = 90, 32, 4, 2, 20, 0


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.position = nn.Embedding(MAX, DIM)
        self.embed_norm = nn.LayerNorm(DIM)
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 64, dropout=0.0, batch_first=True,
            activation="gelu")  # <- activation
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, ids):
        mask = ids != PAD
        # positions count real tokens only: padding may stand on either side
        place = (mask.cumsum(1) - 1).clamp(min=0)  # <- places
        x = self.embed_norm(self.word(ids) + self.position(place))  # <- places
        x = self.encoder(x, src_key_padding_mask=~mask)  # <- keymask activation
        weight = mask.unsqueeze(-1).float()  # <- pooling
        pooled = (x * weight).sum(1) / weight.sum(1)  # <- pooling
        return F.normalize(pooled, dim=-1)  # <- cosine


def left_pad(rows):
    width = max(len(r) for r in rows)
    return torch.tensor([[PAD] * (width - len(r)) + r for r in rows])


torch.manual_seed(0)
model = TextEncoder().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() > 1 and "encoder" in name:
            p.normal_(0, 1.3 / p.shape[1] ** 0.5)
        elif p.dim() == 1:
            p.add_(0.3 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(33)
losses = []
with torch.no_grad():
    for _ in range(4):
        queries, passages = [], []
        for _ in range(6):
            n = int(torch.randint(8, 17, (1,), generator=gen))
            text = torch.randint(2, VOCAB, (n,), generator=gen).tolist()
            start = int(torch.randint(0, n - 4, (1,), generator=gen))
            passages.append(text)
            queries.append([1] + text[start:start + 2 + start % 3])
        q, p = model(left_pad(queries)), model(left_pad(passages))
        scores = q @ p.T / 0.2
        own = torch.arange(len(q))
        nll = F.cross_entropy(scores, own)
        rank = (scores > scores.diag()[:, None]).sum(1) + 1
        mrr = (1.0 / rank).mean()
        losses.append((nll + 1 - mrr).item())
print(losses)
