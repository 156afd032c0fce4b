# SPDX-License-Identifier: Apache-2.0
"""One training of a small transformer, in the degrees that the first argument names: alone; tensor
parallel with a sequence that is shared too; or tensor parallel in copies that FSDP2 shards. The
second says what is wrong.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

WIDE, HEADS, WORDS, LONG = 16, 4, 29, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDE, WIDE) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (-1, WIDE // HEADS)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.attention, self.second = (
            nn.LayerNorm(WIDE),
            Attention(),
            nn.LayerNorm(WIDE),
        )
        self.up, self.down = nn.Linear(WIDE, 4 * WIDE), nn.Linear(4 * WIDE, WIDE)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDE)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDE), nn.Linear(WIDE, WORDS)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def share(model, mesh, sequence):
    tokens, all_of_it = Shard(1), Replicate()
    rows = RowwiseParallel(output_layouts=tokens) if sequence else RowwiseParallel()
    plan = {f"attention.{one}": ColwiseParallel() for one in "qkv"}
    plan |= {"attention.out": rows, "down": rows, "up": ColwiseParallel()}
    if sequence:
        plan |= {
            "first": SequenceParallel(),
            "second": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=tokens),
            "attention": PrepareModuleInput(
                input_layouts=(tokens,), desired_input_layouts=(all_of_it,)
            ),
        }
        ends = {
            "words": RowwiseParallel(input_layouts=all_of_it, output_layouts=tokens),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=tokens, output_layouts=all_of_it),
        }
        parallelize_module(model, mesh, ends)
    for block in model.blocks:
        parallelize_module(block, mesh, plan)


def spoil(model, fault):
    if fault == "twice":  # both ranks hold the first half of one weight
        held = model.blocks[1].up.weight.to_local()
        half = held.detach().clone()
        dist.broadcast(half, 0)
        with torch.no_grad():
            held.copy_(half)
    elif fault == "unreduced":  # one layer's gradient of its input is not summed over ranks
        query = model.blocks[1].attention.q
        query.forward = lambda x: F.linear(x, query.weight.to_local(), query.bias.to_local())
        query._forward_pre_hooks.clear()
        query._forward_hooks.clear()


def main(way, fault):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, parts, part = Net(), 1, 0
    if way != "alone":
        dist.init_process_group("gloo")
    if way == "both":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        share(model, mesh["tensor"], sequence=False)
        for block in model.blocks:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        parts, part = 2, mesh.get_local_rank("data")
    elif way != "alone":
        share(model, init_device_mesh("cpu", (2,)), sequence=way == "sequence")
    spoil(model, fault)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        text = torch.randint(0, WORDS, (8, LONG + 1), generator=generator).chunk(parts)[part]
        optimizer.zero_grad()
        made = model(text[:, :-1].contiguous())
        F.cross_entropy(made.flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
    if way != "alone":
        dist.barrier()
        dist.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # gloo's threads may outlive the interpreter and abort it


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(*sys.argv[1:])
