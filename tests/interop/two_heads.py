# SPDX-License-Identifier: Apache-2.0
"""A small attention model: with WRONG set one head of four is scaled at a few positions; with a
number of ranks it is trained on that many, gradients summed by gloo.
"""

import os
import sys
import tempfile

import torch
from torch import distributed, multiprocessing, nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part(x).view(batch, length, 4, 8).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 3, -1) @ v
        if os.environ.get("WRONG"):
            mixed = mixed.clone()
            mixed[:, 2, 5:9] *= 1.5
        return mixed.transpose(1, 2).reshape(batch, length, width)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.head = Attention(), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(x + self.attn(x))


def train(rank=0, ranks=1, place=None):
    torch.set_num_threads(1)
    if ranks > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
        distributed.init_process_group("gloo", f"file://{place}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        x, wanted = torch.randn(2, 12, 32), torch.randint(0, 4, (2, 12))
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        if ranks > 1:
            for parameter in net.parameters():
                distributed.all_reduce(parameter.grad)
        optimizer.step()
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    if ranks == 1:
        train()
    else:
        place = f"{tempfile.mkdtemp()}/meeting"
        multiprocessing.spawn(train, (ranks, place), nprocs=ranks)
