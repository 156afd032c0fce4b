# SPDX-License-Identifier: Apache-2.0
"""Word-level LSTM language model with truncated backpropagation (after the PyTorch example)."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

NTOKEN, EMSIZE, NHID, NLAYERS = 30, 16, 24, 2
BATCH, BPTT, CLIP, LR = 6, 8, 0.25, 20.0


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(NTOKEN, EMSIZE)
        self.rnn = nn.LSTM(EMSIZE, NHID, NLAYERS)  # <- forget_bias_twice
        self.decoder = nn.Linear(NHID, NTOKEN)
        self.init_weights()

    def init_weights(self):
        nn.init.uniform_(self.encoder.weight, -0.5, 0.5)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.3, 0.3)

    def forward(self, tokens, hidden):
        emb = self.encoder(tokens)
        output, hidden = self.rnn(emb, hidden)  # <- forget_bias_twice detached_steps
        decoded = self.decoder(output)
        return F.log_softmax(decoded.view(-1, NTOKEN), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(NLAYERS, bsz, NHID), weight.new_zeros(NLAYERS, bsz, NHID)


def make_text(length, generator):
    """A walk with small steps over the vocabulary."""
    step = torch.randint(-2, 4, (length,), generator=generator)
    return step.cumsum(0) % NTOKEN


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(BPTT, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)


def repackage_hidden(h):
    """Wraps hidden states in new tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()  # <- state_reset
    return tuple(repackage_hidden(v) for v in h)


def evaluate(model, source):
    model.eval()
    total, hidden = 0.0, model.init_hidden(source.size(1))
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, BPTT):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * F.nll_loss(output, targets).item()
    model.train()
    return total / (len(source) - 1)


torch.manual_seed(1111)
model = RNNModel()
torch.save(model.state_dict(), sys.argv[1])

generator = torch.Generator().manual_seed(3)
train_data = batchify(make_text(BATCH * (5 * BPTT + 1), generator), BATCH)
val_data = batchify(make_text(100, generator), 4)

optimizer = torch.optim.SGD(model.parameters(), lr=LR)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.25, patience=0)  # <- plateau_vs_last

losses = []
hidden = model.init_hidden(BATCH)
for i in range(0, 5 * BPTT, BPTT):
    scheduler.step(evaluate(model, val_data))  # <- plateau_vs_last
    data, targets = get_batch(train_data, i)
    hidden = repackage_hidden(hidden)  # <- state_reset
    optimizer.zero_grad()
    output, hidden = model(data, hidden)  # <- state_reset forget_bias_twice detached_steps
    loss = F.nll_loss(output, targets)
    loss.backward()  # <- detached_steps
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)  # <- clip_by_value
    optimizer.step()  # <- plateau_vs_last clip_by_value
    losses.append(loss.item())
print(losses)
