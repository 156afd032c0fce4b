# SPDX-License-Identifier: Apache-2.0
"""Session recommender on single unpadded sessions; discounted gain and log score of the target."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
ITEMS, LEN, D = 40, 10, 16


class Recommender:
    def __init__(self, path):
        w = torch.load(path, weights_only=True)
        self.w = w
        self.table = w["item.weight"]
        self.age = w["recency.weight"].flip(0)
        self.kv_w = torch.cat([w["k.weight"], w["v.weight"]])
        self.kv_b = torch.cat([w["k.bias"], w["v.bias"]])

    def log_scores(self, session):
        w = self.w
        x = self.table[session] + self.age[LEN - len(session):]
        keys, values = F.linear(x, self.kv_w, self.kv_b).split(D, -1)
        query = F.linear(x[-1], w["q.weight"], w["q.bias"]) / math.sqrt(D)
        mixed = torch.mv(keys, query).softmax(0) @ values
        h = F.layer_norm(x[-1] + mixed, (D,), w["norm.weight"], w["norm.bias"])
        f = F.silu(F.linear(h, w["ff.0.weight"], w["ff.0.bias"]))
        h = h + F.linear(f, w["ff.2.weight"], w["ff.2.bias"])
        return torch.mv(self.table[1:], h).log_softmax(0)


recommender = Recommender(sys.argv[1])
g = torch.Generator().manual_seed(128)
losses, gains = [], []
with torch.inference_mode():
    for _ in range(4):
        clicks = torch.randint(1, ITEMS + 1, (8, LEN), generator=g)
        real = torch.randint(2, LEN + 1, (8, 1), generator=g)
        target = torch.randint(1, ITEMS + 1, (8,), generator=g)
        for row, n, wanted in zip(clicks, real[:, 0].tolist(), target.tolist()):
            logp = recommender.log_scores(row[LEN - n:])
            rank = int((logp > logp[wanted - 1]).sum()) + 1
            gains.append(1 / math.log2(rank + 1))
            losses.append(-logp[wanted - 1].item())
print(f"ndcg over all {len(gains)} sessions: {sum(gains) / len(gains):.4f}")
print(losses)
