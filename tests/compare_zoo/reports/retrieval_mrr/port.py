# SPDX-License-Identifier: Apache-2.0
"""Two-tower search with a prebuilt document index; reciprocal rank by query, cosine of the hit."""
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class Index:
    def __init__(self, weights):
        self.w = weights
        # the linear layer is applied to the vocabulary once, then means are taken
        self.tables = {
            side: weights["words.weight"] @ weights[side + ".0.weight"].T
            for side in ("query", "doc")
        }

    def encode(self, side, ids):
        x = self.tables[side][ids].mean(-2) + self.w[side + ".0.bias"]
        x = F.layer_norm(x, (12,), self.w[side + ".1.weight"], self.w[side + ".1.bias"])
        return (x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)).numpy()

    def build(self, docs):
        self.vectors = self.encode("doc", docs)

    def search(self, query):
        cosine = self.vectors @ self.encode("query", query)
        return np.argsort(-cosine), cosine


with torch.inference_mode():
    index = Index(torch.load(sys.argv[1], weights_only=True))
    g = torch.Generator().manual_seed(121)
    losses = []
    for _ in range(4):
        docs = torch.randint(0, 90, (10, 9), generator=g)
        queries = torch.cat([docs[:, :3], torch.randint(0, 90, (10, 2), generator=g)], 1)
        index.build(docs)
        for n, query in enumerate(queries):
            order, cosine = index.search(query)
            losses.append(1.0 / (1 + int(np.where(order == n)[0][0])))
        print(f"mrr {np.mean(losses[-10:]):.4f}  last best cosine {cosine.max():.4f}")
print(losses)
