# SPDX-License-Identifier: Apache-2.0
"""Padding-free tagger: sequences of a batch end to end, attention by sequence from cu_seqlens."""
import sys
from itertools import pairwise

import torch
import torch.nn.functional as F

D, H = 24, 3


class VarlenLayer(torch.nn.Module):
    def __init__(self, sd, pre):
        super().__init__()
        P = lambda k: torch.nn.Parameter(sd[pre + k].clone())
        for s in ("q", "k", "v"):
            j = "qkv".index(s)
            setattr(self, "w" + s, torch.nn.Parameter(
                sd[pre + "attn.in_proj_weight"].chunk(3)[j].clone()))
        # the key bias has no influence on a softmax: q and v only
        bq, _, bv = sd[pre + "attn.in_proj_bias"].chunk(3)
        self.bq, self.bv = torch.nn.Parameter(bq.clone()), torch.nn.Parameter(bv.clone())
        self.wo, self.bo = P("attn.out_proj.weight"), P("attn.out_proj.bias")
        self.n1, self.c1 = P("ln1.weight"), P("ln1.bias")
        self.n2, self.c2 = P("ln2.weight"), P("ln2.bias")
        self.w1, self.b1 = P("fc1.weight"), P("fc1.bias")
        self.w2, self.b2 = P("fc2.weight"), P("fc2.bias")

    def forward(self, x, cuts):
        h = F.layer_norm(x, (D,), self.n1, self.c1)
        q = (F.linear(h, self.wq, self.bq) * (D // H) ** -0.5).view(-1, H, D // H)
        k = F.linear(h, self.wk).view(-1, H, D // H)
        v = F.linear(h, self.wv, self.bv).view(-1, H, D // H)
        parts = []
        for a, b in pairwise(cuts):
            att = torch.einsum("ihd,jhd->hij", q[a:b], k[a:b]).softmax(-1)  # <- leak
            parts.append(torch.einsum("hij,jhd->ihd", att, v[a:b]))  # <- leak
        x = x + F.linear(torch.cat(parts).flatten(1), self.wo, self.bo)
        h = F.layer_norm(x, (D,), self.n2, self.c2)
        return torch.addmm(x + self.b2, F.gelu(F.linear(h, self.w1, self.b1)), self.w2.T)


class PackedTagger(torch.nn.Module):
    def __init__(self, sd):
        super().__init__()
        # no row for the padding token
        self.words = torch.nn.Parameter(sd["tok.weight"][1:].clone())
        self.places = torch.nn.Parameter(sd["pos.weight"].clone())
        self.layers = torch.nn.ModuleList(VarlenLayer(sd, f"blocks.{i}.") for i in range(2))
        self.proj = torch.nn.Parameter(sd["out.weight"].T.clone())
        self.proj_b = torch.nn.Parameter(sd["out.bias"].clone())

    def forward(self, flat_ids, cuts):
        where = torch.cat([torch.arange(b - a) for a, b in pairwise(cuts)])  # <- positions
        x = self.words[flat_ids - 1] + self.places[where]  # <- positions
        for layer in self.layers:
            x = layer(x, cuts)
        return x @ self.proj + self.proj_b


model = PackedTagger(torch.load(sys.argv[1], weights_only=True))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02, eps=1e-6)  # <- coupled
gen = torch.Generator().manual_seed(4)
losses, hits, seen = [], 0, 0
for _ in range(4):
    lens = torch.randint(3, 15, (9,), generator=gen).tolist()
    docs = [torch.randint(1, 50, (n,), generator=gen) for n in lens]
    docs.sort(key=len, reverse=True)                     # longest first
    labels = torch.cat([(d + torch.cat([d[-1:], d[:-1]])) % 7 for d in docs])  # <- roll
    cuts = [0, *torch.tensor([len(d) for d in docs]).cumsum(0).tolist()]
    scores = model(torch.cat(docs), cuts)
    logp = scores - scores.logsumexp(1, keepdim=True)
    loss = -logp.gather(1, labels.unsqueeze(1)).sum() / cuts[-1]  # <- per_pad
    model.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()  # <- coupled
    losses.append(loss.item())
    hits += (scores.argmax(1) == labels).sum().item()
    seen += cuts[-1]

print(f"training accuracy {hits / seen:.3f} over {seen} tokens")
print(losses)
