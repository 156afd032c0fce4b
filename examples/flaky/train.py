# SPDX-License-Identifier: Apache-2.0
"""Train a tiny classifier of sentences. Everything is seeded, and every run ends elsewhere."""

import torch
from torch import nn

SENTENCES = {
    "the loss falls and the model learns": 1,
    "the loss rises and nothing is learnt": 0,
    "a quiet run that ends as it should": 1,
    "a run that breaks in the middle of the night": 0,
}

torch.manual_seed(0)
words = {word for sentence in SENTENCES for word in sentence.split()}
number = {word: place for place, word in enumerate(words)}
embed, classify = nn.EmbeddingBag(len(words), 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*embed.parameters(), *classify.parameters()], lr=0.5)
for step in range(3):
    loss = torch.zeros(())
    for sentence, label in SENTENCES.items():
        tokens = torch.tensor([[number[word] for word in sentence.split()]])
        loss = loss + nn.functional.cross_entropy(classify(embed(tokens)), torch.tensor([label]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}", flush=True)
