# SPDX-License-Identifier: Apache-2.0
"""Translation with nn.Transformer, label smoothing and the schedule of Vaswani et al. (2017), with
a validation between the epochs.
"""

import math
import sys

import numpy as np
import torch
from torch import nn

SRC, TGT, EMB, HEADS, FFN, LAYERS = 26, 24, 24, 3, 48, 2
PAD, BOS, EOS, BATCH, MAX_LEN, WARMUP = 0, 1, 2, 5, 9, 3


class PositionalEncoding(nn.Module):
    def __init__(self):
        super().__init__()
        den = torch.exp(-torch.arange(0, EMB, 2) * math.log(10000) / EMB)
        pos = torch.arange(0, MAX_LEN).reshape(MAX_LEN, 1)
        table = torch.zeros(MAX_LEN, EMB)
        table[:, 0::2] = torch.sin(pos * den)
        table[:, 1::2] = torch.cos(pos * den)
        self.register_buffer("table", table, persistent=False)

    def forward(self, token_embedding):
        return token_embedding + self.table[: token_embedding.size(1)]


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, EMB)

    def forward(self, tokens):
        return self.embedding(tokens) * math.sqrt(EMB)  # <- embedding


class Seq2SeqTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(
            EMB, HEADS, LAYERS, LAYERS, FFN, dropout=0.0, batch_first=True
        )
        self.generator = nn.Linear(EMB, TGT)
        self.src_tok_emb = TokenEmbedding(SRC)
        self.tgt_tok_emb = TokenEmbedding(TGT)
        self.positional_encoding = PositionalEncoding()

    def forward(self, src, tgt):
        src_emb = self.positional_encoding(self.src_tok_emb(src))
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(tgt))
        tgt_mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1)) == -math.inf
        outs = self.transformer(  # <- memory cross causal
            src_emb,
            tgt_emb,
            tgt_mask=tgt_mask,
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return self.generator(outs)


def make_batch(rng):
    src = np.full((BATCH, MAX_LEN), PAD)
    tgt = np.full((BATCH, MAX_LEN), PAD)
    for i in range(BATCH):
        n, m = rng.integers(3, MAX_LEN + 1), rng.integers(3, MAX_LEN - 1)
        src[i, :n] = rng.integers(3, SRC, n)
        tgt[i, : m + 2] = [BOS, *rng.integers(3, TGT, m), EOS]
    return torch.from_numpy(src), torch.from_numpy(tgt)


torch.manual_seed(111)
model = Seq2SeqTransformer()
for p in model.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
torch.save(model.state_dict(), sys.argv[1])
loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda step: 0.2 * EMB**-0.5 * min((step + 1) ** -0.5, (step + 1) * WARMUP**-1.5),
)


@torch.no_grad()
def evaluate(src, tgt):
    model.eval()
    logits = model(src, tgt[:, :-1])
    loss = loss_fn(logits.reshape(-1, TGT), tgt[:, 1:].reshape(-1))
    model.train()
    return loss.item()


valid = make_batch(np.random.default_rng(1))
rng = np.random.default_rng(112)
losses = []
for epoch in range(4):
    src, tgt = make_batch(rng)
    logits = model(src, tgt[:, :-1])
    loss = loss_fn(logits.reshape(-1, TGT), tgt[:, 1:].reshape(-1))  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- schedule
    scheduler.step()  # <- schedule
    losses.append(loss.item())
    print(f"epoch {epoch}: train {loss.item():.3f}, validation {evaluate(*valid):.3f}")
