# SPDX-License-Identifier: Apache-2.0
"""A word language model as the old example had it: stacked nn.LSTM, tied weights, the state carried
over and cut off, plain steps of clipped gradients, a rate that falls.
"""

import sys

import torch
from torch import nn

VOCAB, SIZE, LAYERS, BATCH, BPTT = 30, 14, 2, 4, 6


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, SIZE)
        self.rnn = nn.LSTM(SIZE, SIZE, LAYERS)  # <- candidate
        self.decoder = nn.Linear(SIZE, VOCAB)
        self.decoder.weight = self.encoder.weight  # <- tied

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.encoder(words), hidden)  # <- candidate carried
        decoded = self.decoder(output.view(-1, SIZE))  # <- tied
        return decoded, hidden


def repackage(hidden):
    return tuple(h.detach() for h in hidden)  # <- carried


def batchify(data):
    columns = len(data) // BATCH
    return data[: columns * BATCH].view(BATCH, -1).t().contiguous()  # <- columns


torch.manual_seed(161)
model = RNNModel()
with torch.no_grad():
    model.decoder.bias.normal_(0.0, 0.1)
torch.save(model.state_dict(), sys.argv[1])

source = torch.randint(VOCAB, (130,), generator=torch.Generator().manual_seed(162))
corpus = batchify(source)
criterion = nn.CrossEntropyLoss()
lr = 2.0
hidden = (torch.zeros(LAYERS, BATCH, SIZE), torch.zeros(LAYERS, BATCH, SIZE))
losses = []
for start in range(0, 5 * BPTT, BPTT):
    words = corpus[start : start + BPTT]  # <- columns
    targets = corpus[start + 1 : start + 1 + BPTT].reshape(-1)  # <- columns
    model.zero_grad()
    hidden = repackage(hidden)  # <- carried
    output, hidden = model(words, hidden)  # <- carried
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)  # <- clipped tied
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-lr)  # <- clipped tied
    lr *= 0.8
    losses.append(loss.item())
