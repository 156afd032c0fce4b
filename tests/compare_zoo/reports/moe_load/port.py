# SPDX-License-Identifier: Apache-2.0
"""Sparse dispatch: each expert sees only its tokens; expert load and margin of the winner."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class SparseMoE:
    def __init__(self, sd, experts=4):
        self.sd = sd
        self.load = torch.zeros(experts, dtype=torch.long)

    def expert(self, n, h):
        w = self.sd
        h = F.gelu(F.linear(h, w[f"experts.{n}.0.weight"], w[f"experts.{n}.0.bias"]))
        return F.linear(h, w[f"experts.{n}.2.weight"], w[f"experts.{n}.2.bias"])

    def __call__(self, x):
        w = self.sd
        h = F.layer_norm(x, (16,), w["norm.weight"], w["norm.bias"])
        prob = F.softmax(h @ w["router.weight"].T, -1)
        gate, chosen = prob.topk(2, -1)
        gate = gate / gate.sum(-1, keepdim=True)
        out = x.clone()
        for n in range(len(self.load)):
            token, slot = (chosen == n).nonzero(as_tuple=True)
            self.load[n] += len(token)
            if len(token):
                out.index_add_(0, token, gate[token, slot, None] * self.expert(n, h[token]))
        return F.linear(out, w["head.weight"], w["head.bias"])


model = SparseMoE(torch.load(sys.argv[1], weights_only=True))
g = torch.Generator().manual_seed(119)
losses = []
with torch.no_grad():
    for _ in range(4):
        x = torch.randn(30, 16, generator=g)
        y = torch.randint(0, 6, (30,), generator=g)
        best = model(x).double().topk(2, 1).values
        losses.append((best[:, 0] - best[:, 1]).mean().item())
        print(f"mean margin {losses[-1]:.4f}")
share = model.load.double() / model.load.sum()
print("expert load", [f"{100 * v:.1f}%" for v in share.tolist()])
print(losses)
