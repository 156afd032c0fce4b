# SPDX-License-Identifier: Apache-2.0
"""BERT-like masked language model: post-norm encoder, tied decoder, AdamW groups, warmup and linear decay."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)

VOCAB, HIDDEN, HEADS, LAYERS, MAXPOS, SEQ, BATCH, STEPS = 40, 24, 3, 2, 20, 14, 4, 5
PAD, MASK = 0, 1
LR, WD, WARMUP, TOTAL = 6e-3, 0.1, 2, 8


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(MAXPOS, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(MAXPOS)[None], persistent=False)  # <- position_offset

    def forward(self, ids, types):
        pos = self.position_embeddings(self.position_ids[:, : ids.size(1)])  # <- position_offset
        return self.LayerNorm(self.word_embeddings(ids) + pos + self.token_type_embeddings(types))


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.attn_out = nn.Linear(HIDDEN, HIDDEN)
        self.attn_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.intermediate = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.output = nn.Linear(2 * HIDDEN, HIDDEN)
        self.out_norm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def transpose_for_scores(self, x):
        return x.view(x.size(0), x.size(1), HEADS, -1).permute(0, 2, 1, 3)

    def forward(self, x, extended_mask):
        q, k, v = (self.transpose_for_scores(f(x)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS)
        scores = scores + extended_mask  # <- padding_seen
        ctx = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(x.shape)
        x = self.attn_norm(self.attn_out(ctx) + x)
        return self.out_norm(self.output(nn.functional.gelu(self.intermediate(x))) + x)


class BertForMaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.transform = nn.Linear(HIDDEN, HIDDEN)
        self.transform_norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.decoder = nn.Linear(HIDDEN, VOCAB)
        self.decoder.weight = self.embeddings.word_embeddings.weight  # <- decoder_detached
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.15)

    def forward(self, ids, types, attention_mask, labels):
        extended = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min  # <- padding_seen
        x = self.embeddings(ids, types)
        for layer in self.layer:
            x = layer(x, extended)
        x = self.transform_norm(nn.functional.gelu(self.transform(x)))
        scores = self.decoder(x)  # <- decoder_detached
        return nn.functional.cross_entropy(scores.view(-1, VOCAB), labels.view(-1), ignore_index=-100)


def make_batch(g):
    ids = torch.randint(2, VOCAB, (BATCH, SEQ), generator=g)
    lengths = torch.randint(SEQ // 2, SEQ + 1, (BATCH,), generator=g)
    attention_mask = (torch.arange(SEQ)[None] < lengths[:, None]).long()
    types = (torch.arange(SEQ)[None] >= lengths[:, None] // 2).long() * attention_mask
    picked = (torch.rand(BATCH, SEQ, generator=g) < 0.3) & attention_mask.bool()
    picked[:, 1] = True
    labels = ids.masked_fill(~picked, -100)
    ids = ids.masked_fill(picked, MASK).masked_fill(attention_mask == 0, PAD)
    return ids, types, attention_mask, labels


torch.manual_seed(21)
model = BertForMaskedLM()
torch.save(model.state_dict(), sys.argv[1])

no_decay = ["bias", "LayerNorm.weight", "norm.weight"]  # <- decay_everything
groups = [
    {"params": [p for n, p in model.named_parameters() if not any(k in n for k in no_decay)], "weight_decay": WD},
    {"params": [p for n, p in model.named_parameters() if any(k in n for k in no_decay)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.98), eps=1e-6)  # <- decay_everything


def lr_lambda(step):
    return step / WARMUP if step < WARMUP else max(0.0, (TOTAL - step) / (TOTAL - WARMUP))  # <- warmup_plus_one


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)  # <- warmup_plus_one
gen = torch.Generator().manual_seed(8)
losses = []
for _ in range(STEPS):
    loss = model(*make_batch(gen))
    loss.backward()
    optimizer.step()  # <- decay_everything warmup_plus_one
    scheduler.step()  # <- warmup_plus_one
    optimizer.zero_grad()
    losses.append(loss.item())
print(losses)
