# SPDX-License-Identifier: Apache-2.0
"""One training in copies that a wrapper shares out: DistributedDataParallel with an optimizer whose
states are sharded (zero), FullyShardedDataParallel (flat); or alone. All is well.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
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
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    data = torch.randn(16, 12, generator=generator).chunk(WORLD)[RANK]
    kinds = torch.randint(0, 5, (16,), generator=generator).chunk(WORLD)[RANK]
    optimizer.zero_grad()
    F.cross_entropy(model(data), kinds).backward()
    optimizer.step()
if WAY != "alone":
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it
