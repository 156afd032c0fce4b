# SPDX-License-Identifier: Apache-2.0
"""Two-task network, uncertainty weighting; each part has an optimizer and a scheduler."""
import sys

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR, ExponentialLR, LinearLR, SequentialLR, StepLR)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(  # <- minus_one
            nn.Linear(10, 24), nn.ELU(), nn.Linear(24, 24), nn.ELU())  # <- minus_one
        self.cls_head = nn.Linear(24, 4)
        self.reg_head = nn.Linear(24, 3)
        self.log_var = nn.Parameter(torch.tensor([0.2, -0.3]))

    def forward(self, x):
        h = self.trunk(x)  # <- minus_one
        return self.cls_head(h), self.reg_head(h)


torch.manual_seed(0)
model = MultiTask()
torch.save(model.state_dict(), sys.argv[1])

opt_trunk = torch.optim.AdamW(model.trunk.parameters(), lr=3e-3, weight_decay=0.1)
opt_cls = torch.optim.SGD(model.cls_head.parameters(),  # <- dampening
                          lr=0.1, momentum=0.9, dampening=0.1)  # <- dampening
opt_reg = torch.optim.RMSprop(model.reg_head.parameters(), lr=2e-3, alpha=0.9, eps=1e-5)
opt_var = torch.optim.Adagrad([model.log_var], lr=0.05)
schedulers = [
    SequentialLR(opt_trunk, [LinearLR(opt_trunk, 0.25, total_iters=2),  # <- cosine_start
                             CosineAnnealingLR(opt_trunk, T_max=4)],  # <- cosine_start
                 milestones=[2]),  # <- cosine_start
    StepLR(opt_cls, step_size=2, gamma=0.5),
    ExponentialLR(opt_reg, gamma=0.9),
]
optimizers = [opt_trunk, opt_cls, opt_reg, opt_var]

ce, huber = nn.CrossEntropyLoss(), nn.SmoothL1Loss(beta=0.5)  # <- beta
gen = torch.Generator().manual_seed(17)
losses = []
for step in range(5):
    x = torch.randn(24, 10, generator=gen)
    noise = 0.1 * torch.randn(24, 3, generator=gen)
    y_cls = x[:, :4].argmax(1)
    y_reg = torch.stack([x[:, 0] * x[:, 1], x[:, 2].abs(), x[:, 3:6].sum(1)], 1) + noise

    logits, pred = model(x)
    task = torch.stack([ce(logits, y_cls), huber(pred, y_reg)])  # <- beta
    loss = (torch.exp(-model.log_var) * task + model.log_var).sum()  # <- flipped

    for o in optimizers:
        o.zero_grad()
    loss.backward()
    for o in optimizers:
        o.step()  # <- dampening
    for s in schedulers:
        s.step()  # <- cosine_start
    losses.append(loss.item())

print(losses)
