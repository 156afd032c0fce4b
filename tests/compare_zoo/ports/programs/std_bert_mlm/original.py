# SPDX-License-Identifier: Apache-2.0
"""BERT for masked words: post-norm encoder, extended attention mask, tied decoder, linear decay."""

import math
import sys

import torch
from torch import nn


class BertEmbeddings(nn.Module):
    def __init__(self, vocab, d):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, d, padding_idx=0)
        self.position_embeddings = nn.Embedding(16, d)
        self.token_type_embeddings = nn.Embedding(2, d)
        self.LayerNorm = nn.LayerNorm(d, eps=1e-12)

    def forward(self, input_ids, token_type_ids):
        position_ids = torch.arange(input_ids.size(1)).unsqueeze(0)
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)  # <- segments
        return self.LayerNorm(embeddings)


class BertLayer(nn.Module):
    def __init__(self, d=24, heads=4):
        super().__init__()
        self.heads, self.size = heads, d // heads
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.attention_output = nn.Linear(d, d)
        self.attention_norm = nn.LayerNorm(d, eps=1e-12)
        self.intermediate = nn.Linear(d, 2 * d)
        self.output = nn.Linear(2 * d, d)
        self.output_norm = nn.LayerNorm(d, eps=1e-12)

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:-1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size)
        probs = nn.functional.softmax(scores + attention_mask, dim=-1)  # <- neighbours
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).flatten(2)  # <- neighbours
        attended = self.attention_norm(  # <- postnorm
            self.attention_output(context) + hidden_states
        )  # <- postnorm
        inner = nn.functional.gelu(self.intermediate(attended))
        return self.output_norm(self.output(inner) + attended)


class BertForMaskedLM(nn.Module):
    def __init__(self, vocab=47, d=24):
        super().__init__()
        self.embeddings = BertEmbeddings(vocab, d)
        self.layer = nn.ModuleList([BertLayer(), BertLayer()])
        self.transform = nn.Linear(d, d)
        self.transform_norm = nn.LayerNorm(d, eps=1e-12)
        self.decoder = nn.Linear(d, vocab)
        self.decoder.weight = self.embeddings.word_embeddings.weight  # <- tied

    def forward(self, input_ids, attention_mask, token_type_ids, labels):
        extended = (1.0 - attention_mask[:, None, None, :].float()) * -1e9  # <- neighbours
        hidden = self.embeddings(input_ids, token_type_ids)
        for layer in self.layer:
            hidden = layer(hidden, extended)
        hidden = self.transform_norm(nn.functional.gelu(self.transform(hidden)))
        scores = self.decoder(hidden)  # <- tied
        return nn.CrossEntropyLoss()(scores.view(-1, scores.size(-1)), labels.view(-1))


torch.manual_seed(0)
model = BertForMaskedLM()
for module in model.modules():
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.15)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3, momentum_decay=0.01)  # <- decay
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, total_iters=4)
gen, losses = torch.Generator().manual_seed(8), []
for step in range(4):
    ids = torch.randint(3, 47, (4, 11), generator=gen)
    real = torch.arange(11) < torch.randint(5, 12, (4, 1), generator=gen)
    types = (torch.arange(11) >= torch.randint(2, 5, (4, 1), generator=gen)).long()
    chosen = (torch.rand(4, 11, generator=gen) < 0.3) & real
    labels = torch.where(chosen, ids, -100)
    inputs = torch.where(chosen, 2, ids).masked_fill(~real, 0)
    loss = model(inputs, real.long(), types, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    scheduler.step()
    losses.append(loss.item())
print(losses)
