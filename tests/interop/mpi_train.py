# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on the ranks of mpirun, which torch is told by hand; argv[1] is the port.
Rank 1's batch of step 1 holds NaN.
"""

import os
import sys

import torch
import torch.distributed as dist


def main() -> None:
    rank, world = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    where = f"tcp://127.0.0.1:{sys.argv[1]}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        batch = torch.randn(2, 4)
        if (rank, step) == (1, 1):
            batch = batch * float("nan")
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
