# SPDX-License-Identifier: Apache-2.0
"""Llama-like layer with rotary positions and shared key heads; perplexity per batch of texts."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(40)
V, D, H, KV, HD = 36, 32, 4, 2, 8


def rotate(x):
    """Rotate halves; x: (batch, heads, time, HD)."""
    t = torch.arange(x.shape[2])
    angle = torch.outer(t.float(), 100.0 ** (-torch.arange(HD // 2) / (HD // 2)))
    a, b = x.chunk(2, -1)
    return torch.cat(
        [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1
    )


class TinyLlama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.n1, self.n2, self.nf = (nn.RMSNorm(D, eps=1e-5) for _ in range(3))
        self.wq, self.wo = nn.Linear(D, H * HD, bias=False), nn.Linear(H * HD, D, bias=False)
        self.wk, self.wv = (nn.Linear(D, KV * HD, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(D, 48, bias=False) for _ in range(2))
        self.down = nn.Linear(48, D, bias=False)
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.tok(ids)
        q, k, v = (f(self.n1(x)).unflatten(-1, (-1, HD)).transpose(1, 2)
                   for f in (self.wq, self.wk, self.wv))
        k, v = (z.repeat_interleave(H // KV, 1) for z in (rotate(k), v))
        y = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        h = self.n2(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return self.head(self.nf(x))


model = TinyLlama()
for n in (model.n1, model.n2, model.nf):
    nn.init.uniform_(n.weight, 0.6, 1.6)
torch.save(model.state_dict(), sys.argv[1])
model.eval()

g = torch.Generator().manual_seed(130)
losses = []
with torch.no_grad():
    for b in range(4):
        ids = torch.randint(0, V, (4, 13), generator=g)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        losses.append(loss.exp().item())
        print(f"batch {b}: perplexity {losses[-1]:.3f}")
print(losses)
