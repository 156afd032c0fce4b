# SPDX-License-Identifier: Apache-2.0
"""Multi-gate mixture of experts over categorical and dense features: click and buy towers."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class EmbeddingLayer(nn.Module):
    def __init__(self, field_dims, embed_dim):
        super().__init__()
        self.embedding = nn.Embedding(sum(field_dims), embed_dim)
        offsets = torch.tensor((0, *field_dims[:-1])).cumsum(0)  # <- offsets
        self.register_buffer("offsets", offsets, persistent=False)  # <- offsets
        nn.init.xavier_uniform_(self.embedding.weight)

    def forward(self, x):
        return self.embedding(x + self.offsets)  # <- offsets


class MultiLayerPerceptron(nn.Module):
    def __init__(self, sizes, output_layer=True):
        super().__init__()
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.PReLU()]  # <- slope
        if output_layer:
            layers.append(nn.Linear(sizes[-1], 1))
        self.mlp = nn.Sequential(*layers)

    def forward(self, x):
        return self.mlp(x)  # <- slope


class MMoEModel(nn.Module):
    def __init__(self, field_dims, numerical=5, dim=6, experts=3, tasks=2):
        super().__init__()
        self.embedding = EmbeddingLayer(field_dims, dim)
        self.numerical_layer = nn.Linear(numerical, dim)
        width = (len(field_dims) + 1) * dim
        self.expert = nn.ModuleList(
            [MultiLayerPerceptron((width, 16), output_layer=False) for _ in range(experts)]
        )
        self.tower = nn.ModuleList([MultiLayerPerceptron((16, 8)) for _ in range(tasks)])
        self.gate = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, experts), nn.Softmax(dim=1))  # <- gate
                for _ in range(tasks)
            ]
        )

    def forward(self, categorical_x, numerical_x):
        cat = self.embedding(categorical_x)
        num = self.numerical_layer(numerical_x).unsqueeze(1)
        emb = torch.cat([cat, num], 1).flatten(1)
        gates = [gate(emb).unsqueeze(1) for gate in self.gate]  # <- gate
        experts = torch.cat([expert(emb).unsqueeze(1) for expert in self.expert], dim=1)
        task_fea = [torch.bmm(g, experts).squeeze(1) for g in gates]
        return [torch.sigmoid(t(f).squeeze(1)) for t, f in zip(self.tower, task_fea)]


torch.manual_seed(0)
model = MMoEModel([7, 11, 5])
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adagrad(  # <- accumulator
    model.parameters(), lr=0.03, initial_accumulator_value=0.1, eps=1e-10
)  # <- accumulator
gen = torch.Generator().manual_seed(99)
losses = []
for step in range(5):
    fields = torch.stack([torch.randint(0, n, (16,), generator=gen) for n in (7, 11, 5)], 1)
    numbers = torch.rand(16, 5, generator=gen)
    click = (torch.rand(16, generator=gen) < 0.5).float()
    buy = click * (torch.rand(16, generator=gen) < 0.5).float()
    p_click, p_buy = model(fields, numbers)
    loss_click = F.binary_cross_entropy(p_click, click)
    loss_buy = F.binary_cross_entropy(p_click * p_buy, buy)  # <- funnel
    loss = (loss_click + loss_buy) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- accumulator
    losses.append(loss.item())
print(losses)
