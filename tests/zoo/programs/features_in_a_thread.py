# SPDX-License-Identifier: Apache-2.0
"""Features are computed in a worker thread; a histogram bin is empty and its log goes into the
model.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


def features(histogram):
    return torch.log(histogram)  # <- origin


torch.manual_seed(0)
model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with ThreadPoolExecutor(max_workers=1) as pool:
    for step in range(4):
        histogram = torch.rand(8, 5) + 0.1
        if step == 2:
            histogram[6, 1] = 0.0
        x = pool.submit(features, histogram).result()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
