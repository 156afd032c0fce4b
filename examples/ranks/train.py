# SPDX-License-Identifier: Apache-2.0
"""Train on two ranks. Rank 1 comes from a validation, and forgot to leave it."""

import torch
import torch.distributed as dist
from torch import nn


def validate(model):
    model.eval()
    with torch.no_grad():
        return model(torch.randn(8, 16)).square().mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)  # each rank has data of its own
    for step in range(4):
        if step == 2 and rank == 1:
            validate(model)
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        if rank == 0:
            print(f"step {step}  loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
