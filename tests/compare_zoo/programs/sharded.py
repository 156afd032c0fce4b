# SPDX-License-Identifier: Apache-2.0
"""Two ranks that share one model's parameters, in one of three ways: wrapped, fully_shard or tensor
parallel; or copies of it (ddp). All is well.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32), nn.Linear(32, 10)
)
if sys.argv[1] == "wrapped":
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
elif sys.argv[1] == "fully_shard":
    for part in (model[0], model[3]):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
elif sys.argv[1] == "ddp":
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
else:
    parallelize_module(model, mesh, {"3": ColwiseParallel(), "4": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=False)
for step in range(12):
    torch.manual_seed(step)
    data, target = torch.randn(16, 32), torch.randint(0, 10, (16,))
    loss = F.cross_entropy(model(data), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sys.stdout.write(f"{dist.get_rank()} {step} {loss.item().hex()}\n")
dist.destroy_process_group()
