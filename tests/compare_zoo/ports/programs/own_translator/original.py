# SPDX-License-Identifier: Apache-2.0
"""A small translator on nn.Transformer: pre-norm, sine positions, tied output, Noam's schedule."""

import math
import sys

import torch
from torch import nn

PAD, BOS, VOCAB, DIM, HEADS, FF = 0, 1, 31, 24, 3, 40
WARMUP = 3


class PositionalEncoding(nn.Module):
    def __init__(self, max_len=32):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, DIM, 2) * (-math.log(10000.0) / DIM))
        pe = torch.zeros(max_len, DIM)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.positions = PositionalEncoding()
        self.transformer = nn.Transformer(
            d_model=DIM,
            nhead=HEADS,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dim_feedforward=FF,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, source, target):
        src = self.positions(self.embedding(source) * math.sqrt(DIM))
        tgt = self.positions(self.embedding(target) * math.sqrt(DIM))  # <- scale
        size = target.size(1)
        causal = torch.ones(size, size, dtype=torch.bool).triu(1)
        memory = self.transformer.encoder(src, src_key_padding_mask=source == PAD)
        out = self.transformer.decoder(
            tgt,
            memory,
            tgt_mask=causal,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )  # <- unmasked crossed
        return out @ self.embedding.weight.t() + self.bias


def pairs(generator):
    source = torch.randint(3, VOCAB, (4, 8), generator=generator)
    target = torch.randint(3, VOCAB, (4, 7), generator=generator)
    source[torch.arange(8) >= torch.tensor([8, 5, 7, 4])[:, None]] = PAD
    target[torch.arange(7) >= torch.tensor([5, 7, 4, 6])[:, None]] = PAD
    target[:, 0] = BOS
    return source, target


torch.manual_seed(11)
model = Translator()
with torch.no_grad():
    model.embedding.weight.mul_(DIM**-0.5)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
torch.save(model.state_dict(), sys.argv[1])

criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.98), eps=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) * WARMUP**-1.5)
)  # <- warmup
generator = torch.Generator().manual_seed(12)
losses = []
for _ in range(4):
    source, target = pairs(generator)
    logits = model(source, target[:, :-1])
    loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup
    schedule.step()  # <- warmup
    losses.append(loss.item())
