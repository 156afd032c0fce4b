# SPDX-License-Identifier: Apache-2.0
"""An LSTM language model on packed sequences: truncated back-propagation, state carried between chunks."""
import sys

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_num_threads(1)
torch.manual_seed(42)

VOCAB, EMBED, HIDDEN, LAYERS = 37, 16, 24, 2
STREAMS, CHUNK, CHUNKS = 5, 9, 5
IGNORE = -1


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, EMBED)
        self.rnn = nn.LSTM(EMBED, HIDDEN, LAYERS, batch_first=True)  # <- gate_order bias_frozen
        self.decoder = nn.Linear(HIDDEN, VOCAB)
        for p in self.parameters():
            nn.init.uniform_(p, -0.3, 0.3)

    def forward(self, tokens, lengths, state):
        packed = pack_padded_sequence(self.encoder(tokens), lengths, batch_first=True, enforce_sorted=False)  # <- pad_advances
        out, state = self.rnn(packed, state)  # <- gate_order bias_frozen pad_advances
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=tokens.shape[1])
        return self.decoder(out), state

    def init_state(self, rows):
        zeros = torch.zeros(LAYERS, rows, HIDDEN)
        return zeros, zeros.clone()


def repackage(state):
    return tuple(s.detach() for s in state)


def chunks(gen):
    """Each stream gives a chunk of its own length every time; the rest is padding."""
    base = torch.randint(0, VOCAB, (STREAMS, 1), generator=gen)
    position = torch.zeros(STREAMS, 1, dtype=torch.long)
    for _ in range(CHUNKS):
        lengths = torch.randint(3, CHUNK + 1, (STREAMS,), generator=gen)
        noise = torch.randint(0, 4, (STREAMS, CHUNK + 1), generator=gen)
        text = (base + 5 * (position + torch.arange(CHUNK + 1)) + noise) % VOCAB
        real = torch.arange(CHUNK) < lengths[:, None]
        yield text[:, :-1].masked_fill(~real, 0), text[:, 1:].masked_fill(~real, IGNORE), lengths
        position = position + lengths[:, None]


model = LanguageModel()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)
optimizer = torch.optim.RMSprop(model.parameters(), lr=4e-3, alpha=0.9, eps=1e-6)  # <- rms_alpha

losses = []
state = model.init_state(STREAMS)
for tokens, labels, lengths in chunks(torch.Generator().manual_seed(13)):
    state = repackage(state)  # <- state_reset
    scores, state = model(tokens, lengths, state)  # <- state_reset
    loss = criterion(scores.reshape(-1, VOCAB), labels.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()  # <- bias_frozen rms_alpha
    losses.append(loss.item())
print(losses)
