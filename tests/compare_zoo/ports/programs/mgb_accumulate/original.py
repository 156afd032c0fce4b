# SPDX-License-Identifier: Apache-2.0
"""Sequence to sequence with GRUs and additive attention, trained on one batch a step, Adagrad."""
import sys

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

VOCAB, EMB, HID, BATCH, SRC, TGT, PAD, BOS = 24, 10, 14, 12, 7, 6, 0, 1


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB, padding_idx=PAD)
        self.rnn = nn.GRU(EMB, HID, batch_first=True)  # <- reset_gate

    def forward(self, src, lengths):
        emb = self.embedding(src)
        packed = pack_padded_sequence(
            emb, lengths, batch_first=True, enforce_sorted=False)  # <- carry
        out, last = self.rnn(packed)  # <- carry reset_gate
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=src.shape[1])  # <- carry
        return out, last[0]  # <- carry


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB)
        self.query = nn.Linear(HID, HID, bias=False)
        self.key = nn.Linear(HID, HID, bias=False)
        self.energy = nn.Linear(HID, 1, bias=False)
        self.cell = nn.GRUCell(EMB + HID, HID)  # <- reset_gate
        self.out = nn.Linear(HID * 2, VOCAB)

    def forward(self, inputs, memory, state, pad):
        keys = self.key(memory)
        logits = []
        for emb in self.embedding(inputs).unbind(1):
            score = self.energy(torch.tanh(keys + self.query(state)[:, None])).squeeze(-1)
            attn = score.masked_fill(pad, float("-inf")).softmax(-1)
            context = torch.bmm(attn[:, None], memory).squeeze(1)
            state = self.cell(torch.cat([emb, context], -1), state)  # <- reset_gate
            logits.append(self.out(torch.cat([state, context], -1)))
        return torch.stack(logits, 1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, src, src_len, tgt):
        memory, state = self.encoder(src, src_len)
        inputs = F.pad(tgt[:, :-1], (1, 0), value=BOS)
        return self.decoder(inputs, memory, state, src == PAD)


def batch(gen):
    src_len = torch.randint(2, SRC + 1, (BATCH,), generator=gen)
    tgt_len = torch.randint(1, TGT + 1, (BATCH,), generator=gen)
    src = torch.randint(2, VOCAB, (BATCH, SRC), generator=gen)
    tgt = torch.randint(2, VOCAB, (BATCH, TGT), generator=gen)
    src[torch.arange(SRC) >= src_len[:, None]] = PAD
    tgt[torch.arange(TGT) >= tgt_len[:, None]] = PAD
    return src, src_len, tgt


torch.manual_seed(1)
model = Seq2Seq()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adagrad(
    model.parameters(), lr=0.2, initial_accumulator_value=0.1, eps=1e-8)  # <- accumulator
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

gen = torch.Generator().manual_seed(314)
losses = []
for step in range(4):
    src, src_len, tgt = batch(gen)
    logits = model(src, src_len, tgt)
    loss = F.cross_entropy(logits.transpose(1, 2), tgt, ignore_index=PAD)  # <- token_mean
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.4)  # <- clip_scaled
    optimizer.step()  # <- accumulator clip_scaled
    scheduler.step()
    losses.append(loss.item())
print(losses)
