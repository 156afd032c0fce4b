# SPDX-License-Identifier: Apache-2.0
"""A sequence tagger: embedding, bidirectional nn.LSTM over packed sequences, RMSprop, clipping."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD = 0


class Tagger(nn.Module):
    def __init__(self, vocab=40, emb=12, hidden=14, tags=6):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=PAD)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)  # <- cell reverse
        self.proj = nn.Linear(2 * hidden, tags)

    def forward(self, tokens, lengths):
        x = self.embedding(tokens)
        packed = pack_padded_sequence(
            x,
            lengths,
            batch_first=True,  # <- reverse
            enforce_sorted=False,
        )
        out, _ = self.lstm(packed)  # <- cell reverse
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=tokens.shape[1])
        return self.proj(out)


def make_batch(gen):
    tokens = torch.randint(1, 40, (5, 9), generator=gen)
    lengths = torch.randint(3, 10, (5,), generator=gen)
    tags = torch.randint(0, 6, (5, 9), generator=gen)
    padded = torch.arange(9)[None, :] >= lengths[:, None]
    return tokens.masked_fill(padded, PAD), lengths, tags.masked_fill(padded, -100)


torch.manual_seed(0)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(model.parameters(), lr=4e-3, alpha=0.9, eps=1e-2)  # <- rms
gen = torch.Generator().manual_seed(21)
losses = []
for step in range(5):
    tokens, lengths, tags = make_batch(gen)
    logits = model(tokens, lengths)
    loss = nn.functional.cross_entropy(  # <- reduction
        logits.flatten(0, 1), tags.flatten(), ignore_index=-100
    )  # <- reduction
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.2)  # <- clip
    optimizer.step()  # <- rms
    losses.append(loss.item())
print(losses)
