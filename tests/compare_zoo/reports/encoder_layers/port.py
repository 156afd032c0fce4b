# SPDX-License-Identifier: Apache-2.0
"""Text encoder on unpadded single texts, last layer only; similarity to the batch's first text."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class SentenceEncoder:
    def __init__(self, path):
        sd = torch.load(path, weights_only=True)
        self.words, self.places = sd.pop("words.weight"), sd.pop("places.weight")
        self.layers = {}
        for key, val in sd.items():
            _, n, rest = key.split(".", 2)
            self.layers.setdefault(int(n), {})[rest] = val

    @staticmethod
    def lin(x, w, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    @staticmethod
    def norm(x, w, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)

    def hidden(self, ids):
        x = self.words[ids] + self.places[: len(ids)]
        for n in sorted(self.layers):
            w = self.layers[n]
            q, k, v = (self.lin(x, w, m)[None] for m in ("query", "key", "value"))
            att = F.scaled_dot_product_attention(q, k, v)[0]
            x = self.norm(x + self.lin(att, w, "dense"), w, "norm1")
            x = self.norm(x + self.lin(self.lin(x, w, "inter").relu(), w, "output"), w, "norm2")
        return x

    def embed(self, ids):
        return F.normalize(self.hidden(ids).mean(0), dim=0)


encoder = SentenceEncoder(sys.argv[1])
g = torch.Generator().manual_seed(114)
losses = []
with torch.inference_mode():
    for b in range(3):
        ids = torch.randint(1, 50, (6, 12), generator=g)
        lengths = torch.randint(4, 13, (6, 1), generator=g)[:, 0].tolist()
        vectors = torch.stack([encoder.embed(row[:n]) for row, n in zip(ids, lengths)])
        losses += (vectors[1:] @ vectors[0]).tolist()
        print(f"batch {b}: cosine", [round(v, 3) for v in losses[-5:]])
print(losses)
