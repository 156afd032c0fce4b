# SPDX-License-Identifier: Apache-2.0
"""A training whose steps last so long that several ships of its run leave; its argument says how
many steps.
"""

import sys
import time

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 64)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
    time.sleep(0.25)
