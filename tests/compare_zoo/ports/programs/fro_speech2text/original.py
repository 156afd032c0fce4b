# SPDX-License-Identifier: Apache-2.0
"""Speech to text on the transformer layers of torch.nn, time first, with the loss of fairseq."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, MELS, WIDTH, HEADS, INNER, PAD, EOS, SMOOTHING = 30, 8, 24, 4, 40, 1, 2, 0.1


def sinusoids(count):
    """Row PAD is nought; the places are counted from PAD + 1 on."""
    speed = torch.exp(torch.arange(WIDTH // 2) * -(math.log(10000) / (WIDTH // 2 - 1)))
    angle = torch.arange(count)[:, None] * speed
    table = torch.cat((angle.sin(), angle.cos()), 1)
    table[PAD] = 0
    return table


class SpeechToText(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsample = nn.ModuleList(
            [nn.Conv1d(MELS, 32, 5, 2, padding=2), nn.Conv1d(16, 2 * WIDTH, 3, 2, padding=1)]
        )
        kind = {"dropout": 0.0, "norm_first": True}
        encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, **kind)
        decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, **kind)
        self.encoder = nn.TransformerEncoder(
            encoder, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(decoder, 2, nn.LayerNorm(WIDTH))  # <- norms
        self.words = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)  # <- untied
        self.project = nn.Linear(WIDTH, VOCAB, bias=False)  # <- untied

    def forward(self, mels, lengths, previous):
        x = mels.transpose(1, 2)
        for conv in self.subsample:
            x = F.glu(conv(x), 1)
            lengths = (lengths - 1) // 2 + 1
        x = x.permute(2, 0, 1) * math.sqrt(WIDTH)
        silent = torch.arange(len(x)) >= lengths[:, None]  # <- lengths
        table = sinusoids(40)
        places = (torch.arange(len(x)) + PAD + 1).masked_fill(silent, PAD)  # <- lengths
        x = self.encoder(
            x + table[places].transpose(0, 1), src_key_padding_mask=silent
        )  # <- lengths
        size = previous.shape[1]
        y = self.words(previous) * math.sqrt(WIDTH)  # <- start untied
        y = (y + table[PAD + 1 : PAD + 1 + size]).transpose(0, 1)
        later = torch.ones(size, size).triu(1).bool()
        y = self.decoder(y, x, tgt_mask=later, memory_key_padding_mask=silent)  # <- lengths norms
        return self.project(y.transpose(0, 1))  # <- untied


torch.manual_seed(101)
model = SpeechToText()
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.15 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-4)
generator = torch.Generator().manual_seed(102)
losses = []
for _ in range(4):
    mels = torch.randn(3, 44, MELS, generator=generator)
    lengths = torch.randint(24, 45, (3,), generator=generator)
    mels[torch.arange(44) >= lengths[:, None]] = 0
    words = torch.randint(4, VOCAB, (3, 8), generator=generator)
    sizes = torch.randint(3, 8, (3, 1), generator=generator)
    target = words.scatter(1, sizes, EOS)
    there = torch.arange(8) <= sizes
    previous = torch.cat((torch.full((3, 1), EOS), target[:, :-1]), 1)  # <- start
    logs = model(mels, lengths, previous)[there].log_softmax(-1)  # <- start lengths
    share = SMOOTHING / (VOCAB - 1)  # <- smoothing
    hit = logs.gather(1, target[there][:, None]).sum()
    loss = -((1 - SMOOTHING - share) * hit + share * logs.sum()) / len(logs)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
