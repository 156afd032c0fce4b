# SPDX-License-Identifier: Apache-2.0
"""BERT-style masked language model with dynamic padding, AdamW and a linear schedule."""
import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)

PAD, CLS, SEP, MASK, VOCAB = 0, 1, 2, 3, 45
HIDDEN, HEADS, LAYERS, MAXLEN = 32, 4, 2, 24


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(MAXLEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, input_ids, token_type_ids):
        position_ids = torch.arange(input_ids.size(1)).unsqueeze(0)
        types = self.token_type_embeddings(token_type_ids)  # <- segments_dropped
        x = self.word_embeddings(input_ids) + types + self.position_embeddings(position_ids)  # <- segments_dropped
        return self.LayerNorm(x)


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)
        self.attn_out = nn.Linear(HIDDEN, HIDDEN)
        self.attn_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.intermediate = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.output = nn.Linear(2 * HIDDEN, HIDDEN)
        self.out_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def heads(self, x):
        return x.view(x.size(0), x.size(1), HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, x, extended_mask):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        scores = scores + extended_mask  # <- mask_on_queries
        context = (scores.softmax(dim=-1) @ v).permute(0, 2, 1, 3).flatten(2)
        x = self.attn_norm(self.attn_out(context) + x)  # <- norm_before_add
        h = nn.functional.gelu(self.intermediate(x))
        return self.out_norm(self.output(h) + x)  # <- norm_before_add


class BertForMaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.transform = nn.Linear(HIDDEN, HIDDEN)
        self.transform_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.decoder_bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, input_ids, token_type_ids, attention_mask, labels):
        extended = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min  # <- mask_on_queries
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layer:
            x = layer(x, extended)
        x = self.transform_norm(nn.functional.gelu(self.transform(x)))
        logits = x @ self.embeddings.word_embeddings.weight.T + self.decoder_bias
        return nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), ignore_index=-100)  # <- mean_over_tokens


def make_corpus(gen, size):
    corpus = []
    for _ in range(size):
        la, lb = torch.randint(3, 10, (2,), generator=gen).tolist()
        a = torch.randint(4, VOCAB, (la,), generator=gen).tolist()
        b = torch.randint(4, VOCAB, (lb,), generator=gen).tolist()
        ids = torch.tensor([CLS, *a, SEP, *b, SEP])
        types = torch.tensor([0] * (la + 2) + [1] * (lb + 1))
        chosen = (torch.rand(len(ids), generator=gen) < 0.3) & (ids > MASK)
        labels = ids.masked_fill(~chosen, -100)
        corpus.append((ids.masked_fill(chosen, MASK), types, labels))
    return corpus


def collate(rows):
    pad = nn.utils.rnn.pad_sequence
    ids, types, labels = zip(*rows)
    ids = pad(ids, batch_first=True, padding_value=PAD)
    types = pad(types, batch_first=True)
    labels = pad(labels, batch_first=True, padding_value=-100)
    return ids, types, (ids != PAD).long(), labels


def get_linear_schedule_with_warmup(optimizer, warmup, total):
    def lr_lambda(step):
        if step < warmup:
            return step / max(1, warmup)
        return max(0.0, (total - step) / max(1, total - warmup))  # <- schedule_span
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)


torch.manual_seed(0)
model = BertForMaskedLM()
for name, p in model.named_parameters():
    if p.dim() == 2:
        nn.init.normal_(p, std=0.1)
torch.save(model.state_dict(), sys.argv[1])

loader = DataLoader(make_corpus(torch.Generator().manual_seed(11), 20), batch_size=4, collate_fn=collate)
no_decay = ("bias", "norm.weight", "LayerNorm.weight")
named = list(model.named_parameters())
optimizer = torch.optim.AdamW([
    {"params": [p for n, p in named if not n.endswith(no_decay)], "weight_decay": 0.01},
    {"params": [p for n, p in named if n.endswith(no_decay)], "weight_decay": 0.0}], lr=4e-3, betas=(0.9, 0.999))
scheduler = get_linear_schedule_with_warmup(optimizer, 1, 6)  # <- schedule_span

losses = []
for input_ids, token_type_ids, attention_mask, labels in loader:
    loss = model(input_ids, token_type_ids, attention_mask, labels)  # <- mean_over_tokens
    loss.backward()
    optimizer.step()  # <- schedule_span
    scheduler.step()  # <- schedule_span
    optimizer.zero_grad()
    losses.append(loss.item())
print(losses)
