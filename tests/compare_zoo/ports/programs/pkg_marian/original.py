# SPDX-License-Identifier: Apache-2.0
"""A small translator of Marian's kind on the layers of torch.nn: post-norms, swish, sinusoids, one
table of words for both languages and the output, smoothed labels, Adam with an inverse root.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, INNER, LAYERS, EOS, BATCH = 40, 32, 4, 48, 2, 0, 3
PAD = VOCAB - 1


def sinusoids(length):
    rates = 10000 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        same = {"dropout": 0.0, "activation": F.silu, "batch_first": True}
        self.words = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(DIM, HEADS, INNER, **same) for _ in range(LAYERS)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(DIM, HEADS, INNER, **same) for _ in range(LAYERS)
        )
        self.register_buffer("decoder_bias", torch.randn(VOCAB))

    def embed(self, ids):
        return self.words(ids) * math.sqrt(DIM) + sinusoids(ids.size(1))  # <- scale

    def forward(self, source, target):
        unseen = source == PAD
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=unseen)
        start = torch.full((len(target), 1), PAD)  # <- start
        y = self.embed(torch.cat((start, target[:, :-1]), dim=1))  # <- start
        causal = torch.ones(y.size(1), y.size(1)).triu(1).bool()
        for layer in self.decoder:
            y = layer(y, x, tgt_mask=causal, memory_key_padding_mask=unseen)  # <- cross_kv
        return F.linear(y, self.words.weight, self.decoder_bias)


def sentences(generator, longest):
    ids = torch.randint(1, PAD, (BATCH, longest), generator=generator)
    lengths = torch.randint(3, longest, (BATCH, 1), generator=generator)
    places = torch.arange(longest)
    return ids.masked_fill(places == lengths, EOS).masked_fill(places > lengths, PAD)


torch.manual_seed(100)
model = Translator()
with torch.no_grad():
    model.words.weight.mul_(0.3)
    for name, p in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            p.add_(0.2 * torch.randn(p.shape))
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98), eps=1e-6)  # <- betas
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda n: min((n + 1) / 2, math.sqrt(2 / (n + 1)))
)
criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)  # <- smoothing
generator = torch.Generator().manual_seed(101)
model.train()
losses = []
for _ in range(5):
    source, target = sentences(generator, 9), sentences(generator, 7)
    logits = model(source, target)
    loss = criterion(logits.flatten(0, 1), target.flatten())  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- betas
    schedule.step()
    losses.append(loss.item())
