# SPDX-License-Identifier: Apache-2.0
"""Sequence-to-sequence training with torch.nn.Transformer, teacher forcing and the Noam schedule."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)

SRC_VOCAB, TGT_VOCAB = 40, 36
PAD, BOS, EOS = 0, 1, 2
D_MODEL, HEADS, FF, WARMUP = 32, 4, 48, 3


class PositionalEncoding(nn.Module):
    def __init__(self, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        table = torch.zeros(max_len, D_MODEL)
        table[:, 0::2] = torch.sin(position * div)
        table[:, 1::2] = torch.cos(position * div)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_embed = nn.Embedding(SRC_VOCAB, D_MODEL, padding_idx=PAD)
        self.tgt_embed = nn.Embedding(TGT_VOCAB, D_MODEL, padding_idx=PAD)
        self.position = PositionalEncoding()
        self.transformer = nn.Transformer(  # <- encoder_norm
            d_model=D_MODEL,
            nhead=HEADS,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dim_feedforward=FF,
            dropout=0.0,
            batch_first=True,
        )
        self.generator = nn.Linear(D_MODEL, TGT_VOCAB)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src, tgt):
        src_pad, tgt_pad = src == PAD, tgt == PAD
        n = tgt.size(1)
        causal = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)
        hidden = self.transformer(  # <- encoder_norm
            self.position(self.src_embed(src) * math.sqrt(D_MODEL)),  # <- scale_after_position
            self.position(self.tgt_embed(tgt) * math.sqrt(D_MODEL)),  # <- scale_after_position
            tgt_mask=causal,
            src_key_padding_mask=src_pad,
            tgt_key_padding_mask=tgt_pad,
            memory_key_padding_mask=src_pad,  # <- memory_mask
        )
        return self.generator(hidden)


def noam(step):
    step += 1  # <- noam_count
    return D_MODEL**-0.5 * min(step**-0.5, step * WARMUP**-1.5)  # <- noam_count


def make_batches(steps=5, size=4):
    gen = torch.Generator().manual_seed(909)
    for _ in range(steps):
        src = torch.full((size, 9), PAD)
        tgt = torch.full((size, 8), PAD)
        for row in range(size):
            n = int(torch.randint(3, 10, (1,), generator=gen))
            m = int(torch.randint(2, 7, (1,), generator=gen))
            src[row, :n] = torch.randint(3, SRC_VOCAB, (n,), generator=gen)
            tgt[row, 0] = BOS
            tgt[row, 1 : m + 1] = torch.randint(3, TGT_VOCAB, (m,), generator=gen)
            tgt[row, m + 1] = EOS
        yield src, tgt


torch.manual_seed(18)
model = Translator()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.15, betas=(0.9, 0.98), eps=1e-9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, noam)  # <- noam_count
criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)  # <- pad_average

losses = []
model.train()
for src, tgt in make_batches():
    logits = model(src, tgt[:, :-1])
    loss = criterion(logits.reshape(-1, TGT_VOCAB), tgt[:, 1:].reshape(-1))  # <- pad_average
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- noam_count
    scheduler.step()
    losses.append(loss.item())
print(losses)
