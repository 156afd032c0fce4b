# SPDX-License-Identifier: Apache-2.0
"""Supervised contrastive learning: two views through a small residual network with batch norm, the
loss of the paper's repository, LARS with biases and norms left out.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BATCH, CLASSES, SIZE, STEPS = 8, 3, 10, 4


class Residual(nn.Module):
    def __init__(self, size_in, size_out):
        super().__init__()
        self.conv1 = nn.Conv2d(size_in, size_out, 3, stride=2, padding=1, bias=False)  # <- padded
        self.bn1 = nn.BatchNorm2d(size_out)
        self.conv2 = nn.Conv2d(size_out, size_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(size_out)
        self.shortcut = nn.Sequential(
            nn.Conv2d(size_in, size_out, 1, stride=2, bias=False), nn.BatchNorm2d(size_out)
        )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))  # <- padded
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class SupConNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.block = Residual(8, 12)
        self.head = nn.Sequential(nn.Linear(12, 12), nn.ReLU(inplace=True), nn.Linear(12, 8))

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))  # <- views
        x = F.adaptive_avg_pool2d(self.block(x), (1, 1)).flatten(1)
        return F.normalize(self.head(x), dim=1)


class SupConLoss(nn.Module):
    def __init__(self, temperature=0.1, base_temperature=0.07):
        super().__init__()
        self.temperature, self.base_temperature = temperature, base_temperature  # <- base

    def forward(self, features, labels):
        batch, views = features.shape[:2]
        mask = torch.eq(labels.view(-1, 1), labels.view(1, -1)).float().repeat(views, views)
        contrast = torch.cat(torch.unbind(features, dim=1), dim=0)
        logits = torch.matmul(contrast, contrast.T) / self.temperature
        logits = logits - logits.max(dim=1, keepdim=True).values.detach()
        itself = torch.arange(batch * views).view(-1, 1)
        logits_mask = torch.scatter(torch.ones_like(mask), 1, itself, 0)  # <- itself
        mask = mask * logits_mask
        exp_logits = torch.exp(logits) * logits_mask  # <- itself
        log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))  # <- itself
        mean_log_prob_pos = (mask * log_prob).sum(1) / mask.sum(1)
        loss = -(self.temperature / self.base_temperature) * mean_log_prob_pos  # <- base
        return loss.mean()


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-2, trust=0.02):
        defaults = {"lr": lr, "mu": momentum, "decay": weight_decay, "trust": trust}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                update = p.grad
                if p.ndim > 1:  # <- excluded
                    update = update + group["decay"] * p  # <- excluded
                    ratio = group["trust"] * p.norm() / update.norm()
                    update = update * torch.where(p.norm() > 0, ratio, 1.0)  # <- excluded
                buffer = self.state[p].setdefault("mu", torch.zeros_like(p))
                buffer.mul_(group["mu"]).add_(update)  # <- excluded
                p.sub_(buffer, alpha=group["lr"])


torch.manual_seed(111)
model = SupConNet()
with torch.no_grad():
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.3)
torch.save(model.state_dict(), sys.argv[1])
optimizer = LARS(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, STEPS + 2, power=2.0)
criterion = SupConLoss()
generator = torch.Generator().manual_seed(112)
losses = []
for _ in range(STEPS):
    labels = torch.randint(0, CLASSES, (BATCH,), generator=generator)
    images = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    images += labels.view(-1, 1, 1, 1) - 1
    noise = 0.3 * torch.randn(2, BATCH, 3, SIZE, SIZE, generator=generator)
    views = torch.cat([images + noise[0], images.flip(3) + noise[1]], dim=0)  # <- views
    features = model(views)  # <- views
    features = torch.stack(features.chunk(2), dim=1)
    loss = criterion(features, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
