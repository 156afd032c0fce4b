# SPDX-License-Identifier: Apache-2.0
"""Two models trained in two threads."""

import threading

import torch
from torch import nn


def train(seed, losses):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(4, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(8, 4, generator=generator)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())


results = [[], []]
threads = [threading.Thread(target=train, args=(seed, results[seed])) for seed in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*results[0], *results[1], sep="\n")
