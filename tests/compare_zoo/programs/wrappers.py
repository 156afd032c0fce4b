# SPDX-License-Identifier: Apache-2.0
"""One training in copies that a wrapper shares out: DistributedDataParallel with an optimizer whose
states are sharded (zero), FullyShardedDataParallel (flat), torch's own pipeline, whose first step
begins with a pass over empty tensors (pipeline); or alone. All is well.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional as F

WAY = sys.argv[1]
torch.set_num_threads(1)
if WAY != "alone":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
RANK, WORLD = (0, 1) if WAY == "alone" else (dist.get_rank(), dist.get_world_size())
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 5)
)
if WAY == "zero":
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
else:
    if WAY == "flat":
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    if WAY == "pipeline":
        for number in [*"345"] if RANK == 0 else [*"012"]:
            model._modules[number] = nn.Identity()
        stage = PipelineStage(model, RANK, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 4, loss_fn=F.cross_entropy)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    data = torch.randn(16, 12, generator=generator)
    kinds = torch.randint(0, 5, (16,), generator=generator)
    optimizer.zero_grad()
    if WAY == "pipeline":
        schedule.step(*([data] if RANK == 0 else []), **({"target": kinds} if RANK else {}))
    else:
        F.cross_entropy(model(data.chunk(WORLD)[RANK]), kinds.chunk(WORLD)[RANK]).backward()
    optimizer.step()
if WAY != "alone":
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it
