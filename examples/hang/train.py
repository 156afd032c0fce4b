# SPDX-License-Identifier: Apache-2.0
"""Train with an operator that iterates until it is precise enough. In float16 it never is."""

import torch
from torch import nn


@torch.library.custom_op("demo::root", mutates_args=())
def root(x: torch.Tensor) -> torch.Tensor:
    guess = torch.ones_like(x)
    while (guess * guess - x).abs().max() > 1e-4 * x.max():
        guess = (guess + x / guess) / 2
    return guess


torch.library.register_autograd(
    "demo::root",
    lambda ctx, gradient: gradient / (2 * ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),  # noqa: ARG005
)

torch.manual_seed(0)
model = nn.Linear(16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    hidden = model(torch.randn(4, 16)).square() + 0.1
    if step == 2:
        hidden = hidden.half()  # "saves memory from here on"
    loss = root(hidden).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  loss {loss.item():.4f}", flush=True)
