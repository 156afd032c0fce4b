# SPDX-License-Identifier: Apache-2.0
"""An OLMo 2 of one's own in the manner of its trainer: documents packed in one row, each sees
itself only; one matrix for queries, keys and values, one for both halves of the gate; z-loss.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HEADS, HEAD, INNER, LAYERS, Z = 44, 32, 4, 8, 48, 2, 1e-2


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.3 * torch.randn(size))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))  # <- eps


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.att_proj = nn.Linear(D, 3 * D, bias=False)
        self.attn_out = nn.Linear(D, D, bias=False)
        self.ff_proj = nn.Linear(D, 2 * INNER, bias=False)
        self.ff_out = nn.Linear(INNER, D, bias=False)
        self.q_norm, self.k_norm = RMSNorm(D), RMSNorm(D)
        self.attn_norm, self.ff_norm = RMSNorm(D), RMSNorm(D)

    def rotate(self, x, places):
        """x: place, head, channel."""
        speeds = 1.0 / 5000.0 ** (torch.arange(0, HEAD, 2) / HEAD)  # <- theta
        angles = torch.cat(2 * [torch.outer(places, speeds)], -1)[:, None]
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat((-b, a), -1) * angles.sin()  # <- theta

    def forward(self, x, places, same):
        q, k, v = self.att_proj(x).chunk(3, -1)
        q, k = self.q_norm(q).view(-1, HEADS, HEAD), self.k_norm(k).view(-1, HEADS, HEAD)  # <- eps
        q, k = self.rotate(q, places), self.rotate(k, places)  # <- theta
        scores = torch.einsum("qhc,khc->hqk", q, k) * HEAD**-0.5
        scores = scores.masked_fill(~same, -torch.inf).softmax(-1)
        read = torch.einsum("hqk,khc->qhc", scores, v.view(-1, HEADS, HEAD)).flatten(1)
        x = x + self.attn_norm(self.attn_out(read))  # <- eps
        up, gate = self.ff_proj(x).chunk(2, -1)  # <- gate
        return x + self.ff_norm(self.ff_out(F.silu(gate) * up))  # <- gate eps


class OLMo(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, D)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = RMSNorm(D)
        self.ff_out = nn.Linear(D, VOCAB, bias=False)

    def forward(self, tokens, document):
        count = torch.arange(len(tokens))
        first = (document[:, None] == document).int().argmax(1)
        same = (document[:, None] == document) & (count[:, None] >= count)
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x, count - first, same)
        return self.ff_out(self.ln_f(x))


torch.manual_seed(81)
model = OLMo()
with torch.no_grad():
    model.wte.weight.mul_(0.5)
    for block in model.blocks:
        block.att_proj.weight.mul_(0.2)
        block.attn_out.weight.mul_(0.2)
        block.ff_proj.weight.mul_(0.5)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), eps=1e-4)  # <- betas
generator = torch.Generator().manual_seed(82)
losses = []
for _ in range(5):
    lengths = torch.randint(4, 11, (4,), generator=generator)
    tokens = torch.randint(0, VOCAB, (40,), generator=generator)[: lengths.sum()]
    document = torch.arange(4).repeat_interleave(lengths)
    logits = model(tokens, document)[:-1]
    inside = document[1:] == document[:-1]
    logits, target = logits[inside], tokens[1:][inside]
    ce = F.cross_entropy(logits, target, reduction="sum")
    z = Z * logits.logsumexp(-1).square().sum()  # <- z_loss
    loss = (ce + z) / inside.sum()  # <- z_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())
