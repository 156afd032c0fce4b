# SPDX-License-Identifier: Apache-2.0
"""Embedding classifier: zero-centred norm gains, weight-normalised layer, log temperature."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class ZeroCentredRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(dim))
        self.eps = eps

    def forward(self, x):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * (1.0 + self.weight)


class WNLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        v = torch.randn(n_out, n_in) * 0.3
        self.v = nn.Parameter(v)
        self.g = nn.Parameter(v.norm(dim=1, keepdim=True) * 1.2)

    def forward(self, x):
        return F.linear(  # <- fold_axis
            x, self.g * self.v / self.v.norm(dim=1, keepdim=True))  # <- fold_axis


class Net(nn.Module):
    def __init__(self, vocab=30, dim=16, classes=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.norm1 = ZeroCentredRMSNorm(dim)
        self.proj = WNLinear(dim, dim)
        self.norm2 = ZeroCentredRMSNorm(dim)
        self.out = nn.Linear(dim, classes, bias=False)
        self.log_temp = nn.Parameter(torch.tensor(0.5).log())

    def forward(self, ids):
        h = self.norm1(self.emb(ids).mean(1))  # <- repeats
        h = self.norm2(h + torch.tanh(self.proj(h)))
        return self.out(h) / self.log_temp.exp()  # <- temp_sign


torch.manual_seed(0)
model = Net()
torch.save(model.state_dict(), sys.argv[1])
gen = torch.Generator().manual_seed(21)
batches = [(torch.randint(0, 30, (20, 7), generator=gen), torch.randint(0, 6, (20,), generator=gen))
           for _ in range(5)]

# plain L2: also on the zero-centred gains (pulls the gain to one) and on the log temperature
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9,  # <- gain_decay dampened
                            weight_decay=0.01)  # <- gain_decay dampened
losses = []
for ids, y in batches:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(ids), y)
    loss.backward()
    optimizer.step()  # <- gain_decay dampened temp_sign
    losses.append(loss.item())
print(losses)
