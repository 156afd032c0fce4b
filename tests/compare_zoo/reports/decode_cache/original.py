# SPDX-License-Identifier: Apache-2.0
"""Greedy generation that recomputes the whole prefix; prints each token's log-probability."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(19)
V, D, H, MAXLEN = 30, 24, 3, 16


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Parameter(torch.randn(MAXLEN, D) * 0.5)
        self.n1, self.n2, self.nf = nn.LayerNorm(D), nn.LayerNorm(D), nn.LayerNorm(D)
        self.att = nn.MultiheadAttention(D, H, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(D, 48), nn.ReLU(), nn.Linear(48, D))
        self.out = nn.Linear(D, V)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos[:t]
        h = self.n1(x)
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = x + self.att(h, h, h, attn_mask=mask, need_weights=False)[0]
        x = x + self.ff(self.n2(x))
        return self.out(self.nf(x))


model = Decoder()
for p in model.att.parameters():
    nn.init.normal_(p, std=0.25)
for n in (model.n1, model.n2, model.nf):
    nn.init.uniform_(n.weight, 0.6, 1.6)
    nn.init.normal_(n.bias, std=0.2)
nn.init.normal_(model.out.weight, std=0.5)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

gen = torch.Generator().manual_seed(109)
losses = []
with torch.no_grad():
    for k in range(3):
        ids = torch.randint(0, V, (1, 4), generator=gen)
        for _ in range(8):
            logp = model(ids)[:, -1].log_softmax(-1)
            best, token = logp.max(-1, keepdim=True)
            losses.append(best.item())
            ids = torch.cat([ids, token], 1)
        print(f"sample {k}: {ids[0].tolist()} logp {sum(losses[-8:]):.3f}")
print(losses)
