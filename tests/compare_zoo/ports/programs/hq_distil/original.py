# SPDX-License-Identifier: Apache-2.0
"""Distilling a 4-layer encoder into 2 layers: logits, hidden states and cosine; teacher outputs cached first."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(83)

VOCAB, MAXLEN, CLASSES, TEMP, PAD = 40, 12, 4, 2.0, 0


class Encoder(nn.Module):
    def __init__(self, dim, heads, ffn, layers):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(MAXLEN, dim)
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, ffn, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(layers))
        self.classifier = nn.Linear(dim, CLASSES)

    def forward(self, ids):
        pad = ids == PAD
        x = self.norm(self.tok(ids) + self.pos(torch.arange(ids.shape[1])))
        hidden = [x]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=pad)
            hidden.append(x)
        return self.classifier(x[:, 0]), hidden


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(12, 2, 24, 2)
        self.match = nn.ModuleList(nn.Linear(12, 16, bias=False) for _ in range(2))

    def forward(self, ids):
        logits, hidden = self.encoder(ids)
        return logits, [m(h) for m, h in zip(self.match, hidden[1:])]


def batches(n, gen):
    for _ in range(n):
        lens = torch.randint(4, MAXLEN + 1, (6,), generator=gen)
        ids = torch.randint(1, VOCAB, (6, MAXLEN), generator=gen)
        ids = ids.masked_fill(torch.arange(MAXLEN) >= lens[:, None], PAD)
        yield ids[:, :int(lens.max())], torch.randint(0, CLASSES, (6,), generator=gen)


teacher, student = Encoder(16, 4, 32, 4), Student()
torch.save({"teacher": teacher.state_dict(), "student": student.state_dict()}, sys.argv[1])

teacher.eval()
cache = []
with torch.no_grad():
    for ids, y in batches(5, torch.Generator().manual_seed(830)):
        logits, hidden = teacher(ids)
        cache.append((ids, y, logits, [hidden[2], hidden[4]]))

no_decay = ("bias", "norm")
named = list(student.named_parameters())
optimizer = torch.optim.AdamW([
    {"params": [p for n, p in named if not any(k in n for k in no_decay)], "weight_decay": 0.1},
    {"params": [p for n, p in named if any(k in n for k in no_decay)], "weight_decay": 0.0}], lr=1e-3, eps=1e-6)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.2, total_iters=5)

losses = []
student.train()
for ids, y, t_logits, t_hidden in cache:
    s_logits, s_hidden = student(ids)
    keep = ids != PAD
    kd = F.kl_div(F.log_softmax(s_logits / TEMP, -1), F.softmax(t_logits / TEMP, -1), reduction="batchmean") * TEMP ** 2
    ce = F.cross_entropy(s_logits, y)
    hid = sum(F.mse_loss(s[keep], t[keep]) for s, t in zip(s_hidden, t_hidden))
    cos = F.cosine_embedding_loss(s_hidden[-1][keep], t_hidden[-1][keep], torch.ones(int(keep.sum())))
    loss = 0.5 * kd + 0.5 * ce + hid + 0.3 * cos
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), 2.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses)
