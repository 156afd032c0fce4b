# SPDX-License-Identifier: Apache-2.0
"""MAML of a small convolutional learner on few-shot tasks: inner steps with a graph, learned rates
of each layer, losses of all inner steps weighted, a cosine of the outer rate.
"""

import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

WAYS, SHOTS, QUERIES, TASKS, INNER, OUTER = 3, 2, 3, 2, 2, 4


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("conv1", nn.Conv2d(1, 6, 3, padding=1)),
                    ("bn1", nn.BatchNorm2d(6, track_running_stats=False)),  # <- norm_eps
                    ("relu1", nn.Softplus(beta=5)),
                    ("pool1", nn.AvgPool2d(2, 2)),
                    ("conv2", nn.Conv2d(6, 8, 3)),
                    ("bn2", nn.BatchNorm2d(8, track_running_stats=False)),  # <- norm_eps
                    ("relu2", nn.Softplus(beta=5)),  # <- softplus
                ]
            )
        )
        self.classifier = nn.Linear(8 * 2 * 2, WAYS)

    def forward(self, x, params):
        x = F.conv2d(x, params["features.conv1.weight"], params["features.conv1.bias"], padding=1)
        x = F.batch_norm(  # <- norm_eps
            x, None, None, params["features.bn1.weight"], params["features.bn1.bias"], True
        )
        x = F.avg_pool2d(F.softplus(x, beta=5), 2)
        x = F.conv2d(x, params["features.conv2.weight"], params["features.conv2.bias"])
        x = F.batch_norm(  # <- norm_eps
            x, None, None, params["features.bn2.weight"], params["features.bn2.bias"], True
        )
        x = F.softplus(x, beta=5)  # <- softplus
        x = x.reshape(len(x), -1)
        return F.linear(x, params["classifier.weight"], params["classifier.bias"])


def adapt(model, params, rates, support, labels):
    """One step of gradient descent on the support set, which the outer loss sees through."""
    loss = F.cross_entropy(model(support, params), labels)
    grads = torch.autograd.grad(loss, params.values(), create_graph=True)  # <- first_order
    return OrderedDict(
        (name, p - rates[name.replace(".", "_")] * g)  # <- stale_start first_order
        for (name, p), g in zip(params.items(), grads)
    )


def task(generator):
    """Classes are blobs at places of their own."""
    centres = torch.rand(WAYS, 2, generator=generator) * 6
    labels = torch.arange(WAYS).repeat(SHOTS + QUERIES)
    noise = torch.randn(len(labels), 2, generator=generator) * 0.5
    grid = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij"), -1)
    away = (grid - (centres[labels] + noise)[:, None, None]).square().sum(-1)
    images = torch.exp(-away / 3).unsqueeze(1)
    n = WAYS * SHOTS
    return images[:n], labels[:n], images[n:], labels[n:]


def main():
    torch.manual_seed(71)
    model = Learner()
    rates = nn.ParameterDict(
        {
            name.replace(".", "_"): nn.Parameter(torch.tensor(0.3 + 0.02 * i))
            for i, (name, _) in enumerate(model.named_parameters())
        }
    )
    torch.save({"net": model.state_dict(), "lrs": rates.state_dict()}, sys.argv[1])
    optimizer = torch.optim.Adam([*model.parameters(), *rates.parameters()], lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(  # <- cosine
        optimizer, T_max=OUTER, eta_min=1e-3
    )
    generator = torch.Generator().manual_seed(72)
    losses = []
    for _ in range(OUTER):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(TASKS):
            support, support_y, query, query_y = task(generator)
            params = OrderedDict(model.named_parameters())
            for weight in (0.3, 0.7):
                params = adapt(model, params, rates, support, support_y)  # <- stale_start
                query_loss = F.cross_entropy(model(query, params), query_y)
                total = total + weight * query_loss / TASKS  # <- last_only
        total.backward()  # <- first_order
        optimizer.step()  # <- cosine
        scheduler.step()  # <- cosine
        losses.append(total.item())
    return losses


losses = main()
