# SPDX-License-Identifier: Apache-2.0
"""Click prediction with a small DLRM: embedding bags, dot interactions, row-wise Adagrad."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)

TABLES = [24, 40, 10, 16]
DENSE, DIM, BATCH, STEPS, LONGEST = 6, 8, 24, 5, 5
POSITIVE_WEIGHT = 2.5


class RowWiseAdagrad(torch.optim.Optimizer):
    """One accumulator for each row of a table, as the big embedding servers keep it."""

    def __init__(self, params, lr=0.05, eps=1e-8):
        super().__init__(params, dict(lr=lr, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["sum"] = torch.zeros(p.shape[0], 1)
                state["sum"] += p.grad.pow(2).mean(dim=1, keepdim=True)  # <- rowwise_mean
                p.addcdiv_(p.grad, state["sum"].sqrt() + group["eps"], value=-group["lr"])


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, DIM, mode="mean") for rows in TABLES)  # <- bag_mean
        self.bottom = nn.Sequential(nn.Linear(DENSE, 16), nn.ReLU(), nn.Linear(16, DIM), nn.ReLU())
        pairs = (len(TABLES) + 1) * len(TABLES) // 2
        self.top = nn.Sequential(nn.Linear(DIM + pairs, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        fields = [x] + [bag(ids, offsets) for bag, (ids, offsets) in zip(self.bags, sparse)]  # <- bag_mean
        stack = torch.stack(fields, dim=1)
        products = torch.bmm(stack, stack.transpose(1, 2))
        row, col = torch.tril_indices(len(fields), len(fields), offset=-1)
        z = torch.cat([x, products[:, row, col]], dim=1)
        return self.top(z).squeeze(1)


class Clicks:
    def __init__(self):
        self.gen = torch.Generator().manual_seed(77)
        self.taste = [torch.randn(rows, generator=self.gen) for rows in TABLES]

    def __iter__(self):
        for _ in range(STEPS):
            counts = torch.rand(BATCH, DENSE, generator=self.gen).pow(3) * 50
            dense = torch.log1p(counts)  # <- dense_log
            score = dense[:, 0] - 1.0
            sparse = []
            for rows, taste in zip(TABLES, self.taste):
                lengths = torch.randint(1, LONGEST + 1, (BATCH,), generator=self.gen)
                ids = torch.randint(0, rows, (int(lengths.sum()),), generator=self.gen)
                offsets = lengths.cumsum(0) - lengths
                sparse.append((ids, offsets))
                score = score + taste[ids[offsets]]
            noise = torch.rand(BATCH, generator=self.gen)
            yield dense, sparse, (score.sigmoid() > noise).float()


def main(path):
    model = DLRM()
    for bag in model.bags:
        nn.init.uniform_(bag.weight, -0.5, 0.5)
    torch.save(model.state_dict(), path)
    mlp = list(model.bottom.parameters()) + list(model.top.parameters())
    optimizers = [
        RowWiseAdagrad(model.bags.parameters(), lr=0.05),
        torch.optim.Adagrad(mlp, lr=0.03, lr_decay=0.1, initial_accumulator_value=0.01, eps=1e-8),  # <- decay_step
    ]
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(POSITIVE_WEIGHT))  # <- pos_weight
    history = []
    for dense, sparse, label in Clicks():
        loss = criterion(model(dense, sparse), label)  # <- pos_weight
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        history.append(loss.item())
    return history


losses = main(sys.argv[1])
print(losses)
