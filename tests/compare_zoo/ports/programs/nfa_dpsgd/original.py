# SPDX-License-Identifier: Apache-2.0
"""DP-SGD on small images: microbatches of one, clipped, noised; backbone trained from step 2 on."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8 * 9, 5)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.1)  # <- leaky_slope
        x = F.leaky_relu(self.conv2(x), 0.1)  # <- leaky_slope
        return self.fc(x.flatten(1))


torch.manual_seed(0)
model = ConvNet()
torch.save(model.state_dict(), sys.argv[1])

CLIP, SIGMA, BATCH = 0.8, 0.3, 8
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.8, dampening=0.1)  # <- dampening_lost
for p in list(model.conv1.parameters()) + list(model.conv2.parameters()):
    p.requires_grad_(False)

data_gen = torch.Generator().manual_seed(31)
noise_gen = torch.Generator().manual_seed(32)
losses = []
for step in range(5):
    if step == 2:  # <- unfreeze_late
        model.requires_grad_(True)  # <- unfreeze_late
    x = torch.randn(BATCH, 1, 6, 6, generator=data_gen)
    y = torch.randint(0, 5, (BATCH,), generator=data_gen)
    params = [p for p in model.parameters() if p.requires_grad]  # <- unfreeze_late
    summed = [torch.zeros_like(p) for p in params]
    total = 0.0
    for i in range(BATCH):
        opt.zero_grad()
        loss = F.cross_entropy(model(x[i:i + 1]), y[i:i + 1], label_smoothing=0.1)  # <- smoothing
        loss.backward()
        total += loss.item()
        nn.utils.clip_grad_norm_(params, CLIP)  # <- by_leaf
        for s, p in zip(summed, params):
            s.add_(p.grad)
    for s, p in zip(summed, params):
        noise = torch.randn(p.shape, generator=noise_gen)
        p.grad = (s + SIGMA * CLIP * noise) / BATCH
    opt.step()  # <- dampening_lost unfreeze_late
    losses.append(total / BATCH)

print(losses)
