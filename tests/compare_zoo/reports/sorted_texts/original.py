# SPDX-License-Identifier: Apache-2.0
"""Topic classifier on texts of differing length, one text at a time; running mean of the loss."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(20)


class TopicModel(nn.Module):
    def __init__(self, vocab=70, dim=16, topics=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.score = nn.Linear(dim, 1)
        self.mix = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, topics)

    def forward(self, ids):
        x = self.emb(ids)
        a = self.score(torch.tanh(self.mix(x))).softmax(0)
        return self.out(self.norm((a * x).sum(0)))


model = TopicModel()
nn.init.normal_(model.score.weight, std=1.0)
nn.init.normal_(model.norm.weight, 1.0, 0.4)
nn.init.normal_(model.norm.bias, 0.0, 0.4)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

gen = torch.Generator().manual_seed(110)
lengths = torch.randint(3, 15, (16,), generator=gen).tolist()
texts = [torch.randint(1, 70, (n,), generator=gen) for n in lengths]
topics = torch.randint(0, 6, (16,), generator=gen)

losses, total = [], 0.0
with torch.no_grad():
    for n, (ids, topic) in enumerate(zip(texts, topics), 1):
        total += F.cross_entropy(model(ids)[None], topic[None]).item()
        losses.append(total / n)
print(f"mean loss after {len(texts)} texts: {losses[-1]:.4f}")
print(losses)
