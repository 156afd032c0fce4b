# SPDX-License-Identifier: Apache-2.0
"""Character model: GRU with tied embeddings, truncated BPTT over a stream, clipped RMSprop."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, DIM, BATCH, CHUNK = 11, 12, 3, 6


class CharGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, num_layers=2, batch_first=True)  # <- reset_place
        self.decoder = nn.Linear(DIM, VOCAB)
        self.decoder.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.3)

    def forward(self, tokens, hidden=None):
        out, hidden = self.rnn(self.embed(tokens), hidden)  # <- reset_place reset_layer
        return self.decoder(out), hidden


def repackage(h):
    return h.detach()


torch.manual_seed(0)
model = CharGRU()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.RMSprop(model.parameters(), lr=4e-3, alpha=0.9,  # <- eps_inside
                          eps=1e-4, momentum=0.5)  # <- eps_inside

gen = torch.Generator().manual_seed(8)
stream = torch.randint(0, VOCAB, (BATCH, 5 * CHUNK + 1), generator=gen)
hidden = torch.zeros(2, BATCH, DIM)
losses = []
for step in range(5):
    lo = step * CHUNK
    x, y = stream[:, lo:lo + CHUNK], stream[:, lo + 1:lo + CHUNK + 1]
    if step == 3:
        hidden[:, 0] = 0.0  # <- reset_layer
    opt.zero_grad()
    logits, hidden = model(x, hidden)
    hidden = repackage(hidden)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), y.reshape(-1))
    ar = 1e-3 * logits.pow(2).mean()  # <- ar_reduction
    (loss + ar).backward()  # <- ar_reduction
    nn.utils.clip_grad_norm_(model.parameters(), 0.4)  # <- clip_norm
    opt.step()  # <- eps_inside
    losses.append(loss.item())

print(losses)
