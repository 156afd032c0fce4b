# SPDX-License-Identifier: Apache-2.0
"""Character model with diagonal state-space layers (complex parameters), run as a step-by-step
recurrence."""
import sys

import torch
import torch.nn as nn

VOCAB, D, N, LEN = 30, 16, 4, 14


class S4D(nn.Module):
    def __init__(self, d=D, n=N):
        super().__init__()
        self.log_dt = nn.Parameter(torch.rand(d) * 2.0 - 2.5)
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.ones(d, n)))
        self.A_imag = nn.Parameter(torch.pi * torch.arange(n).float().repeat(d, 1) * 0.5 + 0.3)
        self.C = nn.Parameter(torch.randn(d, n, dtype=torch.cfloat))
        self.D = nn.Parameter(torch.randn(d))

    def forward(self, u):
        """u: B L D"""
        A = torch.complex(-self.log_A_real.exp(), self.A_imag)
        dtA = A * self.log_dt.exp()[:, None]
        A_bar = torch.exp(dtA)
        B_bar = (A_bar - 1.0) / A                       # zero-order hold, B = 1
        h = torch.zeros(u.shape[0], *A.shape, dtype=torch.cfloat)
        ys = []
        for t in range(u.shape[1]):
            h = A_bar * h + B_bar * u[:, t, :, None]  # <- lag_shift
            ys.append(2 * (self.C * h).sum(-1).real)  # <- lag_shift
        return torch.stack(ys, 1) + self.D * u


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.ssm = S4D()
        self.glu = nn.Linear(D, 2 * D)

    def forward(self, x):
        y = nn.functional.gelu(self.ssm(self.norm(x)), approximate="tanh")  # <- gelu_kind
        return x + nn.functional.glu(self.glu(y), dim=-1)


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, D)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(D)
        self.decoder = nn.Linear(D, VOCAB)

    def forward(self, ids):
        return self.decoder(self.norm(self.blocks(self.encoder(ids))))


torch.manual_seed(1)
model = CharModel()
torch.save(model.state_dict(), sys.argv[1])

ssm = [p for n, p in model.named_parameters() if ".ssm." in n]
rest = [p for n, p in model.named_parameters() if ".ssm." not in n]
optimizer = torch.optim.AdamW([{"params": rest},  # <- group_rate
                               {"params": ssm, "lr": 2e-3, "weight_decay": 0.0}],  # <- group_rate
                              lr=8e-3, weight_decay=0.1, eps=1e-6)
scheduler = torch.optim.lr_scheduler.PolynomialLR(  # <- poly_power
    optimizer, total_iters=6, power=2.0)  # <- poly_power
swa = torch.optim.swa_utils.AveragedModel(model)

g = torch.Generator().manual_seed(8)
data = torch.randint(0, VOCAB, (5, 6, LEN + 1), generator=g)
losses = []
for ids in data:
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1),  # <- target_shift
                                       ids[:, 1:].flatten())  # <- target_shift
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- group_rate poly_power
    scheduler.step()  # <- poly_power
    swa.update_parameters(model)
    losses.append(loss.item())

with torch.no_grad():
    out = swa(data[0][:, :-1]).flatten(0, 1)
    print("averaged-weights loss on the first batch:",
          nn.functional.cross_entropy(out, data[0][:, 1:].flatten()).item())
print(losses)
