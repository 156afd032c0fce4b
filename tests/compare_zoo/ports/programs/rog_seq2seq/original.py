# SPDX-License-Identifier: Apache-2.0
"""A GRU sequence-to-sequence model with dot attention and teacher forcing, trained by Adagrad."""
import sys

import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.set_num_threads(1)
PAD, BOS, EOS = 0, 1, 2
SRC_VOCAB, TGT_VOCAB, EMB, HID = 31, 37, 16, 24


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SRC_VOCAB, EMB, padding_idx=PAD)
        self.gru = nn.GRU(EMB, HID, batch_first=True)  # <- gru_reset

    def forward(self, src, lengths):
        embedded = self.embedding(src)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)  # <- enc_pad_state
        outputs, hidden = self.gru(packed)  # <- enc_pad_state gru_reset
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        return outputs, hidden


class AttnDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TGT_VOCAB, EMB, padding_idx=PAD)
        self.gru = nn.GRU(EMB, HID, batch_first=True)  # <- gru_reset
        self.attn = nn.Linear(HID, HID, bias=False)
        self.combine = nn.Linear(2 * HID, HID)
        self.out = nn.Linear(HID, TGT_VOCAB)

    def forward(self, tokens, hidden, memory, src_mask):
        states, _ = self.gru(self.embedding(tokens), hidden)  # <- gru_reset
        scores = torch.bmm(self.attn(states), memory.transpose(1, 2))
        scores = scores.masked_fill(~src_mask.unsqueeze(1), float("-inf"))
        context = torch.bmm(scores.softmax(dim=-1), memory)
        return self.out(torch.tanh(self.combine(torch.cat([context, states], dim=-1))))


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = AttnDecoder()

    def forward(self, src, src_lengths, tgt_in):
        memory, hidden = self.encoder(src, src_lengths)
        return self.decoder(tgt_in, hidden, memory, src != PAD)


def sample_pairs(n, generator):
    pairs = []
    for _ in range(n):
        s_len, t_len = torch.randint(3, 10, (2,), generator=generator).tolist()
        src = torch.randint(3, SRC_VOCAB, (s_len,), generator=generator)
        tgt = torch.randint(3, TGT_VOCAB, (t_len,), generator=generator)
        pairs.append((src, tgt))
    return pairs


def collate(pairs):
    lengths = torch.tensor([len(s) for s, _ in pairs])
    src = pad_sequence([s for s, _ in pairs], batch_first=True, padding_value=PAD)
    tgt = [torch.cat([torch.tensor([BOS]), t, torch.tensor([EOS])]) for _, t in pairs]
    return src, lengths, pad_sequence(tgt, batch_first=True, padding_value=PAD)


torch.manual_seed(40)
model = Seq2Seq()
for name, p in model.named_parameters():
    if "gru" in name:
        nn.init.uniform_(p, -0.4, 0.4)
torch.save(model.state_dict(), sys.argv[1])

criterion = nn.CrossEntropyLoss(ignore_index=PAD)  # <- pad_loss
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.15, initial_accumulator_value=0.1)  # <- adagrad_init
generator = torch.Generator().manual_seed(12)
pairs = sample_pairs(25, generator)
losses = []
for step in range(5):
    src, lengths, tgt = collate(pairs[step * 5 : step * 5 + 5])
    optimizer.zero_grad()
    logits = model(src, lengths, tgt[:, :-1])
    loss = criterion(logits.reshape(-1, TGT_VOCAB), tgt[:, 1:].reshape(-1))  # <- pad_loss
    loss.backward()
    clip_grad_norm_(model.parameters(), 0.2)  # <- clip_per_param
    optimizer.step()  # <- adagrad_init
    losses.append(loss.item())
print(losses)
