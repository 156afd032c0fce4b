# SPDX-License-Identifier: Apache-2.0
"""What the recorder takes from collectives: which arguments they write, and that nothing is read
before it has arrived.
"""

from __future__ import annotations

import functools
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.testing._internal.distributed.fake_pg import FakeStore

import opscope
from opscope.record.torch.operators import describe
from tests.oldest import IS_OLDEST
from tests.record.recorded import record

pytestmark = pytest.mark.filterwarnings("ignore:`torch.distributed.*is deprecated:FutureWarning")


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
        ("c10d.monitored_barrier_", set()),
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
        waited = torch.ops._c10d_functional.wait_tensor(
            torch.ops._c10d_functional.all_reduce(data, "sum", dist.group.WORLD.group_name)
        )
        (waited * 2).sum()
        functional.all_reduce(data, "max", dist.group.WORLD).view(2, 2) + 1

    found = record(tmp_path, program, plain=plain)
    for call in found.all("_c10d_functional::all_reduce.default"):
        assert found.outputs(call)["0"].max == 3.0
        assert found.inputs(call)["0"].max == 3.0
        assert set(found.outputs(call)) == {"0"}
    for call in found.all("_c10d_functional::wait_tensor.default"):
        assert found.inputs(call)["0"].min is None
        assert found.outputs(call)["0"].max == 3.0
    (product,) = found.all("aten::mul.Tensor")
    assert (
        found.inputs(product)["0"].version
        == found.outputs(found.all("_c10d_functional::wait_tensor.default")[0])["0"].version
    )


@pytest.mark.parametrize("plain", [False, True])
def test_memory_that_is_filled_part_by_part_is_not_read_before(
    tmp_path: Path, *, plain: bool
) -> None:
    def program() -> None:
        bucket = torch.empty(8)
        bucket[:4].copy_(torch.ones(4))
        bucket[4:].copy_(torch.full((4,), 2.0))
        bucket + 0

    found = record(tmp_path, program, plain=plain)
    slices = [found.inputs(call)["0"].size for call in found.all("aten::slice")]
    assert slices == [None, None]
    assert [found.outputs(call)["0"].max for call in found.all("aten::copy_")] == [1.0, 2.0]
    assert found.inputs(found.all("aten::add")[0])["0"].size == 8


@pytest.mark.zoo
@pytest.mark.parametrize("book", ["native", "plain"])
def test_what_stands_in_the_table_is_what_arrived(tmp_path: Path, book: str) -> None:
    """Every collective, waited for at once and later, between two ranks."""
    command = [sys.executable, "-m", "tests.record.exchanging", str(tmp_path)]
    ranks = [
        subprocess.Popen(
            [*command, rank, book], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    told = [rank.communicate(timeout=300) for rank in ranks]
    assert [(rank.returncode, out) for rank, (out, _) in zip(ranks, told, strict=True)] == [
        (0, ""),
        (0, ""),
    ], told


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("plain", [False, True])
def test_who_never_waits_hangs_nowhere_and_gets_what_he_got(tmp_path: Path, *, plain: bool) -> None:
    """gloo fills what reduce_scatter gives inside of wait(): unwaited it stays as it was, and
    nothing is said of it.
    """
    into = torch.full((4,), 7.0)
    seen: list[float] = []

    def program() -> None:
        dist.reduce_scatter_tensor(into, torch.arange(4.0), async_op=True)
        seen.append(float((into * 2).sum()))

    found = record(tmp_path, program, plain=plain)
    assert seen == [56.0]
    (call,) = found.all("c10d::_reduce_scatter_base_")
    assert found.outputs(call)["0"].min is None
    (product,) = found.all("aten::mul.Tensor")
    assert found.inputs(product)["0"].min is None
    assert found.outputs(product)["0"].max == 14.0


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("plain", [False, True])
def test_a_thread_of_its_own_may_wait(tmp_path: Path, *, plain: bool) -> None:
    into = torch.full((4,), 7.0)

    def program() -> None:
        work = dist.reduce_scatter_tensor(into, torch.arange(4.0), async_op=True)
        waiting = threading.Thread(target=work.wait)
        waiting.start()
        waiting.join()
        into.neg_()

    found = record(tmp_path, program, plain=plain)
    (call,) = found.all("c10d::_reduce_scatter_base_")
    assert (found.outputs(call)["0"].min, found.outputs(call)["0"].max) == (0.0, 3.0)
    assert found.outputs(found.all("aten::neg_")[0])["0"].min == -3.0
    assert {call.op.partition("::")[2] for call in found.calls} <= {
        "arange.default",
        "_reduce_scatter_base_.default",
        "neg_.default",
        "arange.start",
    }


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("plain", [False, True])
def test_other_parts_of_a_buffer_are_read_meanwhile(tmp_path: Path, *, plain: bool) -> None:
    def program() -> None:
        flat = torch.arange(8.0)
        work = dist.reduce_scatter_tensor(flat[:4], torch.ones(4), async_op=True)
        flat[4:].mul_(2)
        work.wait()
        flat[:4] + flat[4:]

    found = record(tmp_path, program, plain=plain)
    (call,) = found.all("c10d::_reduce_scatter_base_")
    assert (found.outputs(call)["0"].min, found.outputs(call)["0"].max) == (1.0, 1.0)
    assert found.outputs(found.all("aten::mul_")[0])["0"].max == 14.0
    assert found.outputs(found.all("aten::add")[0])["0"].max == 15.0


@pytest.mark.filterwarnings("ignore:DTensor random operators")  # torch 2.4, of CPUs
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("plain", [False, True])
def test_distributed_tensors_are_served_by_torch(tmp_path: Path, *, plain: bool) -> None:
    """torch never asks their handler, which only calls again."""
    from torch.distributed.device_mesh import init_device_mesh

    if IS_OLDEST:
        from torch.distributed._tensor import Shard, distribute_tensor
    else:
        from torch.distributed.tensor import Shard, distribute_tensor

    given: list[float] = []

    def program() -> None:
        data = distribute_tensor(torch.arange(4.0), init_device_mesh("cpu", (1,)), [Shard(0)])
        given.append(float((data * 2).sum().full_tensor()))

    found = record(tmp_path, program, plain=plain)
    assert given == [12.0]
    assert 6.0 in {
        row.max for call in found.all("aten::mul.Tensor") for row in found.outputs(call).values()
    }


def test_the_place_among_ranks_is_heard_late_and_kept(tmp_path: Path) -> None:
    """Rank and world stand in no variable, and the process group is gone before the last rows."""

    def program(rank: int) -> None:
        torch.ones(2) + 1
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        opscope.mark_step()
        torch.ones(2) + 2
        dist.destroy_process_group()
        opscope.mark_step()
        torch.ones(2) + 3

    for rank in (0, 1):
        found = record(tmp_path / str(rank), functools.partial(program, rank))
        (process,) = found.run.processes
        assert (process.rank, process.world) == (rank, 2)
        assert {call.rank for call in found.calls if call.step == 2} == {rank}
