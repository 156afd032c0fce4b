# SPDX-License-Identifier: Apache-2.0
"""Word-level LSTM language model, truncated back-propagation, tied weights (plain SGD, clipped)."""
import sys

import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, nhid, nlayers):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, nhid)
        self.rnn = nn.LSTM(nhid, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight  # <- untied_gradient
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        nn.init.uniform_(self.encoder.weight, -0.3, 0.3)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens, hidden):
        emb = self.encoder(tokens)
        output, hidden = self.rnn(emb, hidden)  # <- forget_bias carried_layer
        decoded = self.decoder(output)  # <- untied_gradient
        return decoded.view(-1, self.ntoken), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)  # <- chunk_stride


NTOKEN, NHID, NLAYERS, BSZ, BPTT, CLIP = 23, 12, 2, 4, 6, 0.25

torch.manual_seed(0)
model = RNNModel(NTOKEN, NHID, NLAYERS)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(1111)
corpus = torch.randint(0, NTOKEN, (BSZ * 31,), generator=gen)
train_data = batchify(corpus, BSZ)

criterion = nn.CrossEntropyLoss()
lr = 4.0
losses = []
hidden = model.init_hidden(BSZ)
model.train()
for start in range(0, train_data.size(0) - 1, BPTT):  # <- chunk_stride
    data, targets = get_batch(train_data, start, BPTT)  # <- chunk_stride
    model.zero_grad()
    hidden = repackage_hidden(hidden)  # <- carried_layer
    output, hidden = model(data, hidden)  # <- carried_layer
    loss = criterion(output, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)  # <- clip_scope
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)  # <- clip_scope
    losses.append(loss.item())
print(losses)
