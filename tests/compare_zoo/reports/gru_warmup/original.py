# SPDX-License-Identifier: Apache-2.0
"""Sentiment scorer with a GRU: every text's score is read out and printed."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(14)


class Sentiment(nn.Module):
    def __init__(self, vocab=60, emb=16, hid=20):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.rnn = nn.GRU(emb, hid, batch_first=True)
        self.norm = nn.LayerNorm(hid)
        self.out = nn.Linear(hid, 1)

    def forward(self, ids):
        _, last = self.rnn(self.emb(ids))
        return torch.sigmoid(self.out(self.norm(last[0]))).squeeze(1)


model = Sentiment()
with torch.no_grad():
    for p in model.rnn.parameters():
        p.normal_(0, 0.4)
    model.norm.weight.uniform_(0.5, 2.0)
    model.norm.bias.normal_(0, 0.5)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

g = torch.Generator().manual_seed(104)
losses = []
with torch.no_grad():
    for batch in range(3):
        ids = torch.randint(0, 60, (5, 11), generator=g)
        scores = model(ids)
        for i in range(len(ids)):
            losses.append(scores[i].item())
            word = "positive" if losses[-1] > 0.5 else "negative"
            print(f"text {batch * 5 + i:2d}: {word} ({losses[-1]:.4f})")
print(losses)
