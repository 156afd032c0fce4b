# SPDX-License-Identifier: Apache-2.0
"""Two-layer nn.LSTM forecaster trained with Adam and global norm clipping."""
import sys

import torch
import torch.nn as nn


class Forecaster(nn.Module):
    def __init__(self, n_feat=4, hidden=14):
        super().__init__()
        self.rnn = nn.LSTM(n_feat, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, n_feat)

    def forward(self, x):
        out, _ = self.rnn(x)  # <- gate_order cell_out
        return self.head(out)


def series(gen, batch=12, length=16):
    phase = 6.28 * torch.rand(batch, 1, 4, generator=gen)
    freq = 0.2 + 0.5 * torch.rand(batch, 1, 4, generator=gen)
    t = torch.arange(length + 1).view(1, -1, 1)
    return torch.sin(freq * t + phase) + 0.05 * torch.randn(batch, length + 1, 4, generator=gen)


torch.manual_seed(0)
model = Forecaster()
torch.save(model.state_dict(), sys.argv[1])

optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)  # <- bias_rate
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(  # <- schedule
    optimizer, T_max=5, eta_min=4e-4)  # <- schedule
criterion = nn.MSELoss()
gen = torch.Generator().manual_seed(77)

losses = []
model.train()
for step in range(5):
    x = series(gen)
    loss = criterion(model(x[:, :-1]), x[:, 1:])  # <- target_shift
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.08)
    optimizer.step()  # <- bias_rate
    scheduler.step()  # <- schedule
    losses.append(loss.item())

print(losses)
