# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on two ranks over gloo; rank 1 reads a shard with a negative price."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class LogPrice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, price):
        return self.linear(torch.log(price))  # <- origin


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(LogPrice())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(10 + rank)
    for step in range(4):
        price = torch.rand(8, 4, generator=generator) + 0.5
        if rank == 1 and step == 2:
            price[5, 1] = -0.5
        loss = model(price).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{rank} {step} {loss.item().hex()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
