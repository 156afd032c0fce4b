# SPDX-License-Identifier: Apache-2.0
"""Text generation with temperature 0: logits are divided by it, and the sampler raises."""

import torch
from torch import nn


@torch.inference_mode()
def generate(model, token, length, temperature):
    tokens = [token]
    for _ in range(length):
        logits = model(tokens[-1])
        logits = logits / temperature  # <- origin
        tokens.append(torch.multinomial(logits.softmax(-1), 1).squeeze(-1))
    return torch.stack(tokens, 1)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
start = torch.zeros(3, dtype=torch.long)
for temperature in (1.0, 0.5, 0.0):
    print(temperature, generate(model, start, 4, temperature).sum().item())
