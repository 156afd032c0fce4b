# SPDX-License-Identifier: Apache-2.0
"""A small BERT (post-norm) trained on masked words and sentence order together."""
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(21)

VOCAB, HIDDEN, HEADS, LAYERS, INTER, MAXLEN = 47, 32, 4, 2, 64, 20
PAD_ID, CLS, SEP, MASK = 0, 1, 2, 3


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.position_embeddings = nn.Embedding(MAXLEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)  # <- norm_eps

    def forward(self, input_ids, token_type_ids):
        positions = torch.arange(input_ids.shape[1])
        x = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        x = x + self.token_type_embeddings(token_type_ids)
        return self.LayerNorm(x)  # <- norm_eps


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.attention_out = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.intermediate = nn.Linear(HIDDEN, INTER)
        self.output = nn.Linear(INTER, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, x, bias):
        b, n, _ = x.shape
        q, k, v = (m(x).view(b, n, HEADS, -1).transpose(1, 2) for m in (self.query, self.key, self.value))
        probs = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS) + bias, dim=-1)
        context = (probs @ v).transpose(1, 2).reshape(b, n, HIDDEN)
        x = self.attention_norm(x + self.attention_out(context))
        return self.output_norm(x + self.output(nn.functional.gelu(self.intermediate(x))))


class BertForPreTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.encoder = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.order = nn.Linear(HIDDEN, 2)
        self.transform = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.LayerNorm(HIDDEN, eps=1e-12))
        self.decoder_bias = nn.Parameter(torch.zeros(VOCAB))
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.15)

    def forward(self, input_ids, token_type_ids, attention_mask):
        bias = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.encoder:
            x = layer(x, bias)
        pooled = torch.tanh(self.pooler(x[:, 0]))  # <- pooler_detached
        scores = self.transform(x) @ self.embeddings.word_embeddings.weight.t() + self.decoder_bias
        return scores, self.order(pooled)


def make_batch(gen, rows=6):
    ids = torch.full((rows, MAXLEN), PAD_ID)
    types = torch.zeros(rows, MAXLEN, dtype=torch.long)
    swapped = torch.randint(0, 2, (rows,), generator=gen)
    for r in range(rows):
        la, lb = torch.randint(4, 9, (2,), generator=gen).tolist()
        start = int(torch.randint(4, VOCAB, (1,), generator=gen))
        words = (torch.arange(la + lb) * 3 + start - 4) % (VOCAB - 4) + 4
        first, second = words[:la], words[la:]
        if swapped[r]:
            first, second = second, first
        row = torch.cat([torch.tensor([CLS]), first, torch.tensor([SEP]), second, torch.tensor([SEP])])
        ids[r, : len(row)] = row
        types[r, len(first) + 2 : len(row)] = 1  # <- segment_ids
    chosen = (torch.rand(rows, MAXLEN, generator=gen) < 0.25) & (ids > 3)
    labels = ids.masked_fill(~chosen, -100)  # <- unmasked_words
    return ids.masked_fill(chosen, MASK), types, ids != PAD_ID, labels, swapped


model = BertForPreTraining()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.999), eps=1e-6)  # <- no_bias_correction
criterion = nn.CrossEntropyLoss(ignore_index=-100)  # <- unmasked_words
gen = torch.Generator().manual_seed(5)

losses = []
for step in range(5):
    input_ids, token_type_ids, attention_mask, labels, swapped = make_batch(gen)
    scores, order = model(input_ids, token_type_ids, attention_mask)
    loss = criterion(scores.view(-1, VOCAB), labels.view(-1)) + criterion(order, swapped)  # <- unmasked_words
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- no_bias_correction
    losses.append(loss.item())
print(losses)
