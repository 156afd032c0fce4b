# SPDX-License-Identifier: Apache-2.0
"""A one-dimensional conv net on signals; stochastic weight averaging, batch norm statistics made anew after."""
import sys

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class SignalNet(nn.Module):
    def __init__(self, channels=10, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(2, channels, 5, padding=2, bias=False),
            nn.BatchNorm1d(channels),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(channels, 2 * channels, 3, padding=1, groups=2, bias=False),
            nn.BatchNorm1d(2 * channels),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(2 * channels, 16, bias=False), nn.BatchNorm1d(16),
                                        nn.ReLU(), nn.Linear(16, classes))

    def forward(self, x):
        return self.classifier(self.features(x))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    for x, y in loader:
        total += F.cross_entropy(model(x), y, reduction="sum").item()
        count += len(y)
    return total / count


torch.manual_seed(61)
model = SignalNet()
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(62)
labels = torch.randint(0, 4, (64,), generator=gen)
time = torch.linspace(0, 6.2832, 32)
signals = torch.stack([torch.sin((labels[:, None] + 1) * time), torch.cos((labels[:, None] + 1) * time)], 1)
signals = signals + 0.7 * torch.randn(64, 2, 32, generator=gen)
train = TensorDataset(signals[:48], labels[:48])
valid = DataLoader(TensorDataset(signals[48:], labels[48:]), batch_size=16)
loader = DataLoader(train, batch_size=16)

opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
swa_model = AveragedModel(model)
swa_sched = SWALR(opt, swa_lr=0.04, anneal_epochs=1, anneal_strategy="linear")
losses = []
for epoch in range(2):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if epoch >= 1:
            swa_model.update_parameters(model)
        losses.append(loss.item())
    swa_sched.step()
update_bn(loader, swa_model)
losses.append(evaluate(model, valid))
losses.append(evaluate(swa_model, valid))
print(losses)
