# SPDX-License-Identifier: Apache-2.0
"""Encoder-decoder on padded pairs using torch's own transformer layers; translation loss +
language-id head; Noam."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

V, D, HEADS, FF, LANGS, PAD, BOS = 36, 16, 2, 24, 3, 0, 1


def sinusoid(n):
    pos = torch.arange(n).float()[:, None]
    div = torch.exp(torch.arange(0, D, 2).float() * (-math.log(10000.0) / D))
    pe = torch.zeros(n, D)
    pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
    return pe


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_emb = nn.Embedding(V, D, padding_idx=PAD)
        self.tgt_emb = nn.Embedding(V, D, padding_idx=PAD)
        self.encoder = nn.TransformerEncoderLayer(D, HEADS, FF, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(D, HEADS, FF, dropout=0.0, batch_first=True)
        self.generator = nn.Linear(D, V)
        self.lang_head = nn.Linear(D, LANGS)
        self.register_buffer("pe", sinusoid(16), persistent=False)

    def forward(self, src, tgt):
        pad = src == PAD
        mem = self.encoder(self.src_emb(src) * math.sqrt(D) + self.pe[:src.shape[1]],
                           src_key_padding_mask=pad)
        causal = torch.triu(  # <- causal_shift
            torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool), 1)  # <- causal_shift
        h = self.decoder(  # <- causal_shift
            self.tgt_emb(tgt) * math.sqrt(D) + self.pe[:tgt.shape[1]], mem,
            tgt_mask=causal, memory_key_padding_mask=pad)  # <- causal_shift
        keep = (~pad).unsqueeze(-1).float()  # <- pool_count
        pooled = (mem * keep).sum(1) / keep.sum(1)  # <- pool_count
        return self.generator(h), self.lang_head(pooled)


def batch(g, n=6, longest=9):
    sl = torch.randint(3, longest + 1, (n,), generator=g)
    tl = torch.randint(2, longest, (n,), generator=g)
    src = torch.randint(2, V, (n, longest), generator=g)
    tgt = torch.randint(2, V, (n, longest), generator=g)
    src[torch.arange(longest) >= sl[:, None]] = PAD
    tgt[torch.arange(longest) >= tl[:, None]] = PAD
    lang = torch.randint(0, LANGS, (n,), generator=g)
    return src, tgt, lang


torch.manual_seed(0)
model = Seq2Seq()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1.0,  # <- bias_correction
                             betas=(0.9, 0.98), eps=1e-6)  # <- bias_correction
warmup = 3
noam = torch.optim.lr_scheduler.LambdaLR(  # <- warm_step
    optimizer,
    lambda s: 0.05 * D ** -0.5 * min((s + 1) ** -0.5, (s + 1) * warmup ** -1.5))  # <- warm_step
seq_loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)  # <- smooth_spread
g = torch.Generator().manual_seed(31)
losses = []
model.train()
for step in range(4):
    src, tgt, lang = batch(g)
    tgt_in = torch.cat([torch.full((len(tgt), 1), BOS), tgt[:, :-1]], 1)
    logits, lang_logits = model(src, tgt_in)
    loss = (seq_loss(logits.reshape(-1, V), tgt.reshape(-1))  # <- smooth_spread
            + 0.3 * F.cross_entropy(lang_logits, lang))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- warm_step bias_correction
    noam.step()  # <- warm_step
    losses.append(loss.item())
print(losses)
