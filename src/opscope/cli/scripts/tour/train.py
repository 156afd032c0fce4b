# SPDX-License-Identifier: Apache-2.0
"""The example of `opscope tour`: one attention head in float16, whose author forgot to scale the
scores.
"""

import torch

torch.manual_seed(0)


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = torch.nn.Linear(16, 64, bias=False)
        self.key = torch.nn.Linear(16, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        mixed: torch.Tensor = scores.softmax(-1) @ x
        return mixed


head = Head().half()
optimizer = torch.optim.SGD(head.parameters(), lr=1e-2)
for step in range(3):
    x = torch.randn(8, 16) * (1, 4, 150)[step]
    loss = (head(x.half()).float() - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}")
