# SPDX-License-Identifier: Apache-2.0
"""BERT-like encoder on padded sentence pairs: pooled embeddings against a fixed probe vector."""
import math
import sys

import torch
import torch.nn as nn

HIDDEN, HEADS, VOCAB, MAX_LEN = 48, 4, 120, 32
EPS = 1e-12  # <- norm_eps


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=0)
        self.position_embeddings = nn.Embedding(MAX_LEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=EPS)  # <- norm_eps

    def forward(self, input_ids, token_type_ids):
        pos = torch.arange(input_ids.size(1), device=input_ids.device)[None]
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(pos)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)  # <- segments
        return self.LayerNorm(embeddings)  # <- norm_eps segments


class BertSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)

    def transpose_for_scores(self, x):
        return x.view(x.size(0), x.size(1), HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, hidden, extended_mask):
        q = self.transpose_for_scores(self.query(hidden))  # <- in_proj
        k = self.transpose_for_scores(self.key(hidden))  # <- in_proj
        v = self.transpose_for_scores(self.value(hidden))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HIDDEN // HEADS)  # <- in_proj
        probs = nn.functional.softmax(scores + extended_mask, dim=-1)  # <- pad_keys
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return context.view(*hidden.shape)


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self = BertSelfAttention()
        self.attn_dense = nn.Linear(HIDDEN, HIDDEN)
        self.attn_norm = nn.LayerNorm(HIDDEN, eps=EPS)
        self.intermediate = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.output = nn.Linear(4 * HIDDEN, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=EPS)

    def forward(self, hidden, extended_mask):
        attn = self.attn_norm(self.attn_dense(self.self(hidden, extended_mask)) + hidden)
        inter = nn.functional.gelu(self.intermediate(attn))
        return self.output_norm(self.output(inter) + attn)


class BertModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList([BertLayer() for _ in range(2)])
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.18)
            nn.init.normal_(m.bias, std=0.1)
        elif isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=0.02)
        elif isinstance(m, nn.LayerNorm):
            nn.init.normal_(m.weight, 1.0, 0.25)
            nn.init.normal_(m.bias, 0.0, 0.25)

    def forward(self, input_ids, attention_mask, token_type_ids):
        extended = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0  # <- pad_keys
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layer:
            x = layer(x, extended)  # <- pad_keys
        keep = attention_mask.unsqueeze(-1).float()  # <- mean_pool
        pooled = (x * keep).sum(1) / keep.sum(1).clamp(min=1e-9)  # <- mean_pool
        return x, pooled  # <- mean_pool


def make_batch(gen, n=4, length=18):
    ids = torch.randint(1, VOCAB, (n, length), generator=gen)
    lengths = torch.randint(6, length + 1, (n,), generator=gen)
    mask = (torch.arange(length)[None] < lengths[:, None]).long()
    types = ((torch.arange(length)[None] >= lengths[:, None] // 2).long()) * mask
    return ids * mask, mask, types


torch.manual_seed(0)
model = BertModel().eval()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(5)
probe = torch.randn(HIDDEN, generator=gen)
losses = []
with torch.no_grad():
    for _ in range(4):
        hidden, pooled = model(*make_batch(gen))
        cosine = nn.functional.cosine_similarity(pooled, probe[None], dim=-1)
        losses.append((1 - cosine).mean().item() + pooled.abs().max().item())
print(losses)
