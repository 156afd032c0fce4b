# SPDX-License-Identifier: Apache-2.0
"""Mean of the nodes of each graph in bfloat16 (pytorch issue 139242: the sums stop at 256)."""

import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
nodes = torch.rand(2048, 3).bfloat16()
graph = torch.arange(2048) % 2
for _ in range(3):
    print(
        torch.zeros(2, 3, dtype=torch.bfloat16)
        .index_reduce(0, graph, nodes, "mean", include_self=False)
        .tolist()
    )
    nodes = nodes.roll(1, 0)
