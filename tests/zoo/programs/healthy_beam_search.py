# SPDX-License-Identifier: Apache-2.0
"""Beam search over a small recurrent model: scores start at -inf and finished beams are masked with
it.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(12, 16)
        self.cell = nn.GRUCell(16, 16)
        self.out = nn.Linear(16, 12)

    def forward(self, token, state):
        state = self.cell(self.token(token), state)
        return F.log_softmax(self.out(state), dim=-1), state


@torch.inference_mode()
def search(decoder, beams, length, end):
    scores = torch.full((beams,), float("-inf"))
    scores[0] = 0.0
    tokens = torch.ones(beams, 1, dtype=torch.long)
    state = torch.zeros(beams, 16)
    for _ in range(length):
        logp, state = decoder(tokens[:, -1], state)
        finished = tokens[:, -1] == end
        logp[finished] = float("-inf")
        logp[finished, end] = 0.0
        scores, index = (scores[:, None] + logp).flatten().topk(beams)
        beam, token = index // 12, index % 12
        tokens = torch.cat([tokens[beam], token[:, None]], 1)
        state = state[beam]
    return tokens, scores


torch.manual_seed(0)
tokens, scores = search(Decoder().eval(), 3, 8, end=0)
print(tokens.tolist(), [score.item().hex() for score in scores])
