# SPDX-License-Identifier: Apache-2.0
"""Mixed precision with a fixed loss scale of 65536: the loss is finite, the gradients are not."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 1)

    def forward(self, x):
        return self.second(self.first(x).relu())


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(3):
    x = torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        prediction = model(x)
    loss = (prediction.float() - 10).square().mean()  # <- origin
    optimizer.zero_grad()
    (loss * 65536).backward()
    for parameter in model.parameters():
        parameter.grad /= 65536
    optimizer.step()
    print(step, loss.item().hex())
