# SPDX-License-Identifier: Apache-2.0
"""Trains a very small timm ConvNeXt with the timm optimizer factory, cosine schedule and label smoothing."""
import sys

import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.models.convnext import ConvNeXt
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

torch.set_num_threads(1)

CLASSES, STEPS = 6, 5


def make_data():
    g = torch.Generator().manual_seed(1234)
    x = torch.randn(STEPS, 4, 3, 32, 32, generator=g)
    y = torch.randint(0, CLASSES, (STEPS, 4), generator=g)
    return x, y


torch.manual_seed(6)
model = ConvNeXt(
    in_chans=3,
    num_classes=CLASSES,
    depths=(1, 1, 2, 1),
    dims=(8, 12, 16, 20),
    patch_size=4,
    kernel_sizes=5,
    ls_init_value=0.5,
    drop_path_rate=0.0,
)
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.ndim > 1:
            p.mul_(8.0)
torch.save(model.state_dict(), sys.argv[1])
model.train()

optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
scheduler = CosineLRScheduler(optimizer, t_initial=10, lr_min=1e-5, warmup_t=2, warmup_lr_init=2e-4)
criterion = LabelSmoothingCrossEntropy(smoothing=0.1)

inputs, targets = make_data()
losses = []
scheduler.step(0)
for it in range(STEPS):
    optimizer.zero_grad()
    output = model(inputs[it])
    loss = criterion(output, targets[it])
    loss.backward()
    optimizer.step()
    scheduler.step(it + 1)
    losses.append(loss.item())

print(losses)
