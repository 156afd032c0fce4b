# SPDX-License-Identifier: Apache-2.0
"""Truncated-BPTT GRU language model: nn.GRU, carried hidden state, SGD with Nesterov momentum."""
import math
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1234)

VOCAB = 30
EMSIZE = 16
NHID = 24
NLAYERS = 2
BPTT = 8
BATCH = 5
CLIP = 0.25


class RNNModel(nn.Module):
    """Container module with an encoder, a recurrent module, and a decoder."""

    def __init__(self, ntoken, ninp, nhid, nlayers):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.GRU(ninp, nhid, nlayers)  # <- reset_gate step_detach
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers = nhid, nlayers
        self.init_weights()

    def init_weights(self):
        initrange = 0.3
        nn.init.uniform_(self.encoder.weight, -initrange, initrange)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -initrange, initrange)
        for name, p in self.rnn.named_parameters():
            nn.init.uniform_(p, -0.5, 0.5)

    def forward(self, tokens, hidden):
        emb = self.encoder(tokens)
        output, hidden = self.rnn(emb, hidden)  # <- reset_gate step_detach
        decoded = self.decoder(output)
        return decoded.view(-1, VOCAB), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(self.nlayers, bsz, self.nhid)


def synthetic_corpus(length):
    """A noisy Markov chain over the vocabulary."""
    g = torch.Generator().manual_seed(77)
    successors = torch.randint(0, VOCAB, (VOCAB, 3), generator=g)
    choices = torch.randint(0, 3, (length,), generator=g)
    current, out = 0, []
    for c in choices.tolist():
        current = int(successors[current, c])
        out.append(current)
    return torch.tensor(out)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(BPTT, len(source) - 1 - i)
    data = source[i:i + seq_len]
    target = source[i + 1:i + 1 + seq_len].view(-1)
    return data, target


def repackage_hidden(h):
    return h.detach()


train_data = batchify(synthetic_corpus(BATCH * 45), BATCH)
model = RNNModel(VOCAB, EMSIZE, NHID, NLAYERS)
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9, nesterov=True)  # <- nesterov

losses = []
model.train()
hidden = model.init_hidden(BATCH)
for i in range(0, 5 * BPTT, BPTT):
    data, targets = get_batch(train_data, i)
    model.zero_grad()
    hidden = repackage_hidden(hidden)  # <- carried_state
    output, hidden = model(data, hidden)  # <- carried_state
    loss = criterion(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)  # <- clip_global
    optimizer.step()  # <- nesterov
    losses.append(loss.item())
    assert math.isfinite(losses[-1])
print(losses)
