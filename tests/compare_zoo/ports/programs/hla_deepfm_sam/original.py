# SPDX-License-Identifier: Apache-2.0
"""DeepFM on mixed tabular data with three tasks and learned log-variances; SAM around SGD,
OneCycle schedule."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

CARDS, NUM, K, BS, STEPS = (7, 11, 4), 5, 6, 32, 5


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params, self.base, self.rho = list(params), base, rho

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm()  # <- sam_norm
        self.shift = [p.grad * (self.rho / (norm + 1e-12)) for p in self.params]  # <- sam_norm
        for p, e in zip(self.params, self.shift):
            p.add_(e)

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.shift):
            p.sub_(e)
        self.base.step()  # <- momentum_cycle


class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c, K) for c in CARDS)
        self.first_order = nn.ModuleList(nn.Embedding(c, 1) for c in CARDS)
        self.num_embed = nn.Parameter(torch.randn(NUM, K) * 0.1)
        self.num_linear = nn.Linear(NUM, 1)
        self.deep = nn.Sequential(nn.Linear((len(CARDS) + NUM) * K, 16), nn.Mish(),
                                  nn.Linear(16, 12), nn.Mish())
        self.click = nn.Linear(12, 1)
        self.value = nn.Linear(12, 1)
        self.grade = nn.Linear(12, 4)
        self.log_var = nn.Parameter(torch.zeros(3))
        for e in self.embeddings:
            nn.init.normal_(e.weight, std=0.1)

    def forward(self, cat, num):
        fields = [e(cat[:, i]) for i, e in enumerate(self.embeddings)]
        fields += [num[:, j:j + 1] * self.num_embed[j] for j in range(NUM)]
        first = sum(e(cat[:, i]) for i, e in enumerate(self.first_order)) + self.num_linear(num)
        second = 0.0
        for i in range(len(fields)):
            for j in range(i + 1, len(fields)):
                second = second + (fields[i] * fields[j]).sum(1, keepdim=True)  # <- fm_half
        h = self.deep(torch.cat(fields, 1))
        return (first + second + self.click(h)).squeeze(1), self.value(h).squeeze(1), self.grade(h)


def compute_loss(model, cat, num, click, value, grade):
    c, v, gr = model(cat, num)
    tasks = torch.stack([F.binary_cross_entropy_with_logits(c, click),
                         F.huber_loss(v, value, delta=0.8),  # <- huber_delta
                         F.cross_entropy(gr, grade)])
    return (torch.exp(-model.log_var) * tasks + 0.5 * model.log_var).sum()


def batch(g):
    cat = torch.stack([torch.randint(0, c, (BS,), generator=g) for c in CARDS], 1)
    num = torch.randn(BS, NUM, generator=g)
    num[:, 0] = num[:, 0].exp() * 30 + 2              # a skewed column
    click = (torch.rand(BS, generator=g) < 0.3).float()
    value = torch.randn(BS, generator=g) * 1.5
    grade = torch.randint(0, 4, (BS,), generator=g)
    num = torch.cat([num[:, :1].log1p() / 3, num[:, 1:]], 1)  # <- log_column
    return cat, num, click, value, grade


torch.manual_seed(0)
model = DeepFM()
torch.save(model.state_dict(), sys.argv[1])
base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(base, max_lr=0.1,  # <- momentum_cycle
                                            total_steps=STEPS,
                                            pct_start=0.4, div_factor=10,
                                            final_div_factor=100)
sam = SAM(model.parameters(), base)
g = torch.Generator().manual_seed(2024)
losses = []
for step in range(STEPS):
    data = batch(g)
    base.zero_grad()
    loss = compute_loss(model, *data)
    loss.backward()
    sam.ascend()
    base.zero_grad()
    compute_loss(model, *data).backward()
    sam.descend()
    if step < STEPS - 1:
        sched.step()  # <- momentum_cycle
    losses.append(loss.item())
    print(step, [round(float(s), 3) for s in model.log_var.detach().exp()], sched.get_last_lr())
print(losses)
