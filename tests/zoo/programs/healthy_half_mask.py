# SPDX-License-Identifier: Apache-2.0
"""float16 attention that adds -65504 to masked scores, as older transformers do."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, keep):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5
        mask = (1.0 - keep[:, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        return (scores * 8 - 4 + mask).softmax(-1) @ self.value(x)


torch.manual_seed(0)
model = Attention(16).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(4, 6, 16).half()
    keep = torch.arange(6) < torch.tensor([6, 4, 2, 1])[:, None]
    loss = model(x, keep).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
