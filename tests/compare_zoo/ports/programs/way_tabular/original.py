# SPDX-License-Identifier: Apache-2.0
"""A transformer over the columns of a table, with two tasks weighted by their uncertainty, Lion,
rates by depth, accumulated gradients and an average of the weights for the evaluation.
"""

import copy
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

NUMERIC, CARDINALITIES, WIDTH, HEADS, BATCH, MICRO = 4, (3, 5, 4), 16, 4, 12, 3


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                p.data.mul_(1 - group["lr"] * group["weight_decay"])  # <- layer_decay
                exp_avg = state["exp_avg"]
                update = exp_avg.clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()  # <- lion
                p.add_(update, alpha=-group["lr"])  # <- layer_decay lion
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)  # <- lion


class FeatureTokenizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(NUMERIC, 6) * 0.3)
        self.weight = nn.Parameter(torch.randn(NUMERIC, 12, WIDTH) / 12**0.5)
        self.category_embeddings = nn.Embedding(sum(CARDINALITIES), WIDTH)
        offsets = torch.tensor([0, *CARDINALITIES[:-1]]).cumsum(0)  # <- offsets
        self.register_buffer("category_offsets", offsets)
        self.cls = nn.Parameter(torch.randn(1, 1, WIDTH))

    def forward(self, x_num, x_cat):
        angles = 2 * math.pi * self.frequencies * x_num[..., None]
        periodic = torch.cat([angles.cos(), angles.sin()], -1)
        numbers = (periodic[..., None, :] @ self.weight).squeeze(-2)
        rows = x_cat + self.category_offsets  # <- offsets
        categories = self.category_embeddings(rows)  # <- offsets
        return torch.cat([self.cls.expand(len(x_num), -1, -1), numbers, categories], 1)


class Layer(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.norm0 = nn.Identity() if first else nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)  # <- scale_last
        self.norm1 = nn.LayerNorm(WIDTH)
        self.linear0, self.linear1 = nn.Linear(WIDTH, 2 * 20), nn.Linear(20, WIDTH)

    def forward(self, x):
        y = self.norm0(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]  # <- scale_last
        a, b = self.linear0(self.norm1(x)).chunk(2, -1)
        return x + self.linear1(a * F.relu(b))


class TabularModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokenizer = FeatureTokenizer()
        self.layers = nn.ModuleList([Layer(i == 0) for i in range(3)])
        self.norm = nn.LayerNorm(WIDTH)
        self.price, self.kind = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 3)
        self.log_vars = nn.Parameter(torch.tensor([0.3, -0.2]))

    def forward(self, x_num, x_cat):
        x = self.tokenizer(x_num, x_cat)
        for layer in self.layers:
            x = layer(x)
        x = F.relu(self.norm(x[:, 0]))
        return self.price(x).squeeze(-1), self.kind(x)

    def loss(self, x_num, x_cat, price, kind):
        predicted, logits = self(x_num, x_cat)
        regression = F.mse_loss(predicted, price)
        classification = F.cross_entropy(logits, kind)
        s = self.log_vars
        value = 0.5 * torch.exp(-s[0]) * regression + 0.5 * s[0]  # <- uncertainty
        return value + torch.exp(-s[1]) * classification + 0.5 * s[1]


def groups(model, lr=2e-3, decay=0.6):
    depth = {"tokenizer": 0, "layers": 1, "norm": 4, "price": 4, "kind": 4, "log_vars": 4}
    out = []
    for name, p in model.named_parameters():
        first, *rest = name.split(".")
        level = depth[first] + (int(rest[0]) if first == "layers" else 0)
        out.append({"params": [p], "lr": lr * decay ** (4 - level)})  # <- layer_decay
    return out


class EMA:
    def __init__(self, model, decay=0.9):
        self.module, self.decay, self.updates = copy.deepcopy(model).eval(), decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))  # <- averaged
        for ours, theirs in zip(self.module.parameters(), model.parameters()):
            ours.copy_(ours * d + theirs * (1 - d))  # <- averaged


def table(generator):
    x_num = torch.rand(BATCH, NUMERIC, generator=generator) * 2 - 1
    cats = [torch.randint(c, (BATCH,), generator=generator) for c in CARDINALITIES]
    x_cat = torch.stack(cats, 1)
    price = 20 + 5 * x_num.sum(1) * (1 + x_cat[:, 0]) + x_cat[:, 1]
    kind = (x_cat[:, 2] + (x_num[:, 0] > 0)) % 3
    return x_num, x_cat, (price - 22.0) / 8.0, kind


torch.manual_seed(81)
model = TabularModel()
for layer in model.layers:
    nn.init.normal_(layer.attention.in_proj_bias, std=0.2)
torch.save(model.state_dict(), sys.argv[1])
optimizer = Lion(groups(model), lr=2e-3, weight_decay=0.5)
ema = EMA(model)
generator = torch.Generator().manual_seed(82)
losses = []
for step in range(5):
    optimizer.zero_grad()
    total = 0.0
    for micro in zip(*[column.split(MICRO) for column in table(generator)]):
        loss = model.loss(*micro) * MICRO / BATCH
        loss.backward()
        total += loss.item()
    optimizer.step()
    ema.update(model)
    losses.append(total)
with torch.no_grad():
    losses.append(ema.module.loss(*table(generator)).item())  # <- averaged
