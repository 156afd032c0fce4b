# SPDX-License-Identifier: Apache-2.0
"""A classifier on a post-norm OPT in the old fairseq manner: time first, batched matrix products,
queries, keys and values of a head side by side in one matrix, learned positions from 2 on.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

PAD, VOCAB, NARROW, EMBED, HEADS, INNER, LAYERS, MAX_LEN, CLASSES = 1, 40, 16, 24, 4, 48, 3, 20, 3


class LearnedPositionalEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, padding_idx):
        super().__init__(num_embeddings + padding_idx + 1, embedding_dim)
        self.offset = padding_idx

    def forward(self, tokens):
        mask = tokens.ne(self.offset).int()
        positions = (torch.cumsum(mask, dim=1) * mask).long() + self.offset  # <- offset mask
        return super().forward(positions)  # <- offset mask


class MultiheadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_proj = nn.Linear(EMBED, 3 * EMBED)
        self.out_proj = nn.Linear(EMBED, EMBED)
        self.head_dim = EMBED // HEADS

    def forward(self, x, attn_mask):
        tgt_len, bsz, _ = x.size()
        mixed = (
            self.qkv_proj(x).view(tgt_len, bsz * HEADS, 3 * self.head_dim).transpose(0, 1)
        )  # <- heads
        q, k, v = mixed.chunk(3, dim=-1)  # <- heads
        q = q * self.head_dim**-0.5
        attn = torch.baddbmm(attn_mask, q, k.transpose(1, 2))  # <- mask
        attn = torch.bmm(F.softmax(attn, dim=-1), v)
        return self.out_proj(attn.transpose(0, 1).reshape(tgt_len, bsz, EMBED))


class TransformerDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = MultiheadAttention()
        self.self_attn_layer_norm = nn.LayerNorm(EMBED)
        self.fc1 = nn.Linear(EMBED, INNER)
        self.fc2 = nn.Linear(INNER, EMBED)
        self.final_layer_norm = nn.LayerNorm(EMBED)

    def forward(self, x, attn_mask):
        x = self.self_attn_layer_norm(x + self.self_attn(x, attn_mask))
        x = x + self.fc2(F.relu(self.fc1(x)))
        return self.final_layer_norm(x)  # <- normed


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, NARROW, padding_idx=PAD)
        self.embed_positions = LearnedPositionalEmbedding(MAX_LEN, EMBED, PAD)
        self.project_in_dim = nn.Linear(NARROW, EMBED, bias=False)
        self.layers = nn.ModuleList([TransformerDecoderLayer() for _ in range(LAYERS)])
        self.project_out_dim = nn.Linear(EMBED, NARROW, bias=False)
        self.classification_head = nn.Linear(NARROW, CLASSES, bias=False)

    def forward(self, tokens):
        lowest = torch.finfo(torch.float32).min
        size = tokens.size(1)
        future = torch.ones(size, size).triu(1).bool()
        hidden = future[None] | tokens.eq(PAD)[:, None]
        attn_mask = torch.zeros(hidden.shape).masked_fill(hidden, lowest)  # <- mask
        attn_mask = attn_mask.repeat_interleave(HEADS, dim=0)  # <- mask
        x = self.project_in_dim(self.embed_tokens(tokens)) + self.embed_positions(tokens)
        x = x.transpose(0, 1)
        for layer in self.layers:
            x = layer(x, attn_mask)
        return self.classification_head(self.project_out_dim(x[-1]))


torch.manual_seed(60)
model = Classifier()
with torch.no_grad():
    for layer in model.layers:
        for norm in (layer.self_attn_layer_norm, layer.final_layer_norm):
            norm.weight.add_(0.3 * torch.randn(EMBED))
            norm.bias.add_(0.3 * torch.randn(EMBED))
torch.save(model.state_dict(), sys.argv[1])

model.embed_tokens.requires_grad_(False)  # <- frozen
model.embed_positions.requires_grad_(False)
groups = [{"params": list(model.classification_head.parameters()), "lr": 1e-2}]
for depth, layer in enumerate(model.layers):
    rate = 1e-2 * 0.5 ** (LAYERS - depth)
    groups.append({"params": list(layer.parameters()), "lr": rate})  # <- rates
groups.append({"params": list(model.project_out_dim.parameters()), "lr": 1e-2})
groups.append({"params": list(model.project_in_dim.parameters()), "lr": 1e-2 * 0.5 ** (LAYERS + 1)})
optimizer = torch.optim.Adam(groups, eps=1e-6)  # <- frozen rates
criterion = nn.CrossEntropyLoss()
generator = torch.Generator().manual_seed(61)
losses = []
for _ in range(4):
    tokens = torch.randint(4, VOCAB, (5, 9), generator=generator)
    padding = torch.randint(0, 5, (5, 1), generator=generator)
    tokens = tokens.masked_fill(torch.arange(9) < padding, PAD)
    target = torch.randint(0, CLASSES, (5,), generator=generator)
    loss = criterion(model(tokens), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- frozen rates
    losses.append(loss.item())
