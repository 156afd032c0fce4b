# SPDX-License-Identifier: Apache-2.0
"""What the recorder takes from collectives: which arguments they write, and that nothing is read before it has arrived."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from opscope.record.torch.operators import describe
from tests.record.recorded import record


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process only."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("op", "writes"),
    [
        ("c10d.allgather_", {"0"}),
        ("c10d.send", set()),
        ("_c10d_functional.all_reduce", set()),
        ("_c10d_functional.wait_tensor", {"0"}),
        ("_c10d_functional.all_gather_into_tensor_out", {"kwargs.out"}),
    ],
)
def test_which_arguments_a_collective_writes(op: str, writes: set[str]) -> None:
    operator = describe(functools.reduce(getattr, op.split("."), torch.ops).default)
    assert (operator.writes, operator.collective) == (writes, True)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("plain", [False, True])
def test_a_result_is_read_once_it_has_arrived(tmp_path: Path, *, plain: bool) -> None:
    def program() -> None:
        data = torch.arange(4.0)
        waited = torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(data, "sum", dist.group.WORLD.group_name))
        (waited * 2).sum()
        functional.all_reduce(data, "max", dist.group.WORLD).view(2, 2) + 1

    found = record(tmp_path, program, plain=plain)
    for call in found.all("_c10d_functional::all_reduce.default"):
        assert found.outputs(call)["0"].min is None
        assert found.inputs(call)["0"].max == 3.0
        assert set(found.outputs(call)) == {"0"}
    for call in found.all("_c10d_functional::wait_tensor.default"):
        assert found.inputs(call)["0"].min is None
        assert found.outputs(call)["0"].max == 3.0
    (product,) = found.all("aten::mul.Tensor")
    assert found.inputs(product)["0"].version == found.outputs(found.all("_c10d_functional::wait_tensor.default")[0])["0"].version
