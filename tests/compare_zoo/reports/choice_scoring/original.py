# SPDX-License-Identifier: Apache-2.0
"""Multiple choice by a recurrent language model, option by option; summed log-likelihoods."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(35)
V = 45


class RecurrentLM(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.emb = nn.Embedding(V, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.bias = nn.Parameter(torch.randn(V) * 0.3)

    def forward(self, ids):
        h, _ = self.lstm(self.emb(ids))
        return self.norm(h) @ self.emb.weight.T + self.bias


lm = RecurrentLM()
for p in lm.lstm.parameters():
    nn.init.normal_(p, std=0.3)
nn.init.normal_(lm.norm.weight, 0.4, 0.15)
nn.init.normal_(lm.norm.bias, 0.0, 0.1)
torch.save(lm.state_dict(), sys.argv[1])
lm.eval()


def questions(seed, count):
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        stem = torch.randint(1, V, (6,), generator=g)
        sizes = torch.randint(2, 6, (4,), generator=g).tolist()
        yield stem, [torch.randint(1, V, (n,), generator=g) for n in sizes]


losses = []
with torch.no_grad():
    for k, (stem, options) in enumerate(questions(125, 5)):
        scores = []
        for option in options:
            ids = torch.cat([stem, option])[None]
            logp = lm(ids[:, :-1]).log_softmax(-1)[0, len(stem) - 1:]
            scores.append(logp.gather(1, option[:, None]).sum().item())
        losses.append(max(scores))
        print(f"question {k}: option {scores.index(max(scores))} ({losses[-1]:.3f})")
print(losses)
