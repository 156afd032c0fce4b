# SPDX-License-Identifier: Apache-2.0
"""Multiple choice, the stem read once and its state shared; share of the winner by length norm."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
V, DIM = 45, 20


class ChoiceScorer(nn.Module):
    def __init__(self, sd):
        super().__init__()
        self.cell = nn.LSTMCell(DIM, DIM)
        self.cell.load_state_dict(
            {k: sd[f"lstm.{k}_l0"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        )
        self.emb, self.bias = sd["emb.weight"], sd["bias"]
        self.gain, self.shift = sd["norm.weight"], sd["norm.bias"]

    def log_prob(self, h):
        h = F.layer_norm(h, (DIM,), self.gain, self.shift)
        return F.linear(h, self.emb, self.bias).log_softmax(-1)

    def forward(self, stem, options):
        state = None
        for token in stem:
            state = self.cell(self.emb[token][None], state)
        state = tuple(s.expand(len(options), -1) for s in state)
        padded = pad_sequence(options, batch_first=True, padding_value=0)
        total = torch.zeros(len(options))
        for column in padded.T:
            gained = self.log_prob(state[0]).gather(1, column[:, None])[:, 0]
            total = total + gained * (column > 0)
            state = self.cell(self.emb[column], state)
        return total


scorer = ChoiceScorer(torch.load(sys.argv[1], weights_only=True)).eval()
g = torch.Generator().manual_seed(125)
losses = []
with torch.inference_mode():
    for k in range(5):
        stem = torch.randint(1, V, (6,), generator=g)
        sizes = torch.randint(2, 6, (4,), generator=g).tolist()
        options = [torch.randint(1, V, (n,), generator=g) for n in sizes]
        sums = scorer(stem, options)
        share = (sums / torch.tensor(sizes)).softmax(0)
        losses.append(100 * share.max().item())
        print(f"question {k}: option {share.argmax().item()} with {losses[-1]:.1f} %")
print(losses)
