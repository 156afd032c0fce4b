# SPDX-License-Identifier: Apache-2.0
"""Text encoder returning the hidden states of all layers; prints the norm of each layer."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(24)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
        self.dense = nn.Linear(d, d)
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d, eps=1e-6)
        self.inter, self.output = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x, bias):
        s = self.query(x) @ self.key(x).mT / x.shape[-1] ** 0.5 + bias
        x = self.norm1(x + self.dense(s.softmax(-1) @ self.value(x)))
        return self.norm2(x + self.output(torch.relu(self.inter(x))))


class Encoder(nn.Module):
    def __init__(self, vocab=50, d=20, depth=3):
        super().__init__()
        self.words = nn.Embedding(vocab, d, padding_idx=0)
        self.places = nn.Embedding(12, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(depth))

    def forward(self, ids):
        bias = torch.where(ids == 0, -1e9, 0.0)[:, None]
        states = [self.words(ids) + self.places.weight[: ids.shape[1]]]
        for layer in self.layers:
            states.append(layer(states[-1], bias))
        return states


enc = Encoder()
for layer in enc.layers:
    for n in (layer.norm1, layer.norm2):
        nn.init.uniform_(n.weight, 0.5, 1.5)
        nn.init.normal_(n.bias, std=0.3)
torch.save(enc.state_dict(), sys.argv[1])
enc.eval()

g = torch.Generator().manual_seed(114)
losses = []
with torch.no_grad():
    for b in range(3):
        ids = torch.randint(1, 50, (6, 12), generator=g)
        ids[torch.arange(12) >= torch.randint(4, 13, (6, 1), generator=g)] = 0
        for depth, state in enumerate(enc(ids)):
            losses.append(state[ids != 0].norm(dim=-1).mean().item())
            print(f"batch {b} layer {depth}: mean norm {losses[-1]:.4f}")
print(losses)
