# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on two ranks over gloo, written out; the argument says what is wrong on
rank 1.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


def main(fault: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    bad = rank == 1
    torch.manual_seed(7 if bad and fault == "seed" else 0)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 8, bias=False))
    if fault != "seed":
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
    rate = 0.2 if bad and fault == "rate" else 0.1
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(10 + rank)
    for step in range(3):
        x, y = (
            torch.randn(4, 8, generator=generator),
            torch.randint(0, 8, (4,), generator=generator),
        )
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        late = bad and step == 1
        if late and fault == "raise":
            raise ValueError("bad sample 17")
        for place, parameter in enumerate(model.parameters()):
            if late and fault == "skip" and place == 1:
                continue
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
        if late and fault == "weight":
            with torch.no_grad():
                model[0].weight.mul_(1.001)
        optimizer.step()
    if fault == "skip" and bad:
        dist.all_reduce(torch.zeros(8, 8))  # so that the other rank can end
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(sys.argv[1])
