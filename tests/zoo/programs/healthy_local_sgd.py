# SPDX-License-Identifier: Apache-2.0
"""Three ranks on two unlike machines: gradients are averaged on each machine alone after a warm-up,
parameters over all now and then.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

WARM = 3


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    machine, _ = dist.new_subgroups_by_enumeration([[0, 1], [2]])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    state = PostLocalSGDState(process_group=None, subgroup=machine, start_localSGD_iter=WARM)
    model.register_comm_hook(state, post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        PeriodicModelAverager(period=4, warmup_steps=WARM),
    )
    generator = torch.Generator().manual_seed(10 + rank)
    for step in range(12):
        x = torch.randn(8, 4, generator=generator)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
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
