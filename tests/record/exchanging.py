# SPDX-License-Identifier: Apache-2.0
"""Two ranks run every collective under recording and hold what stands in the tables against what
arrived.

python -m tests.record.exchanging FOLDER RANK native|plain  (prints a line for each row that is
                                                            wrong)
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tests.oldest import IS_OLDEST
from tests.record.recorded import Recorded, record

Outputs = list[torch.Tensor]
warnings.simplefilter("ignore")


def own(size: int = 4) -> torch.Tensor:
    return torch.arange(1.0, size + 1) * (10.0 ** dist.get_rank())


def stale(*shape: int) -> torch.Tensor:
    return torch.full(shape, 7.0)


def finish(work: Any, *, waits: bool) -> None:
    if waits:
        work.wait()


def all_reduce(*, waits: bool) -> Outputs:
    data = own()
    finish(dist.all_reduce(data, async_op=waits), waits=waits)
    return [data]


def reduce(*, waits: bool) -> Outputs:
    data = own()
    finish(dist.reduce(data, 0, async_op=waits), waits=waits)
    return [data]


def broadcast(*, waits: bool) -> Outputs:
    data = own() if dist.get_rank() == 0 else stale(4)
    finish(dist.broadcast(data, 0, async_op=waits), waits=waits)
    return [data]


def all_gather(*, waits: bool) -> Outputs:
    into = [stale(4), stale(4)]
    finish(dist.all_gather(into, own(), async_op=waits), waits=waits)
    return into


def all_gather_into_tensor(*, waits: bool) -> Outputs:
    into = stale(8)
    finish(dist.all_gather_into_tensor(into, own(), async_op=waits), waits=waits)
    return [into]


def all_gather_in_place(*, waits: bool) -> Outputs:
    into = stale(8)
    into[4 * dist.get_rank() :][:4].copy_(own())
    finish(
        dist.all_gather_into_tensor(into, into[4 * dist.get_rank() :][:4], async_op=waits),
        waits=waits,
    )
    return [into]


def reduce_scatter(*, waits: bool) -> Outputs:
    into = stale(2)
    finish(dist.reduce_scatter(into, list(own().chunk(2)), async_op=waits), waits=waits)
    return [into]


def reduce_scatter_tensor(*, waits: bool) -> Outputs:
    into = stale(2)
    finish(dist.reduce_scatter_tensor(into, own(), async_op=waits), waits=waits)
    return [into]


def reduce_scatter_coalesced(*, waits: bool) -> Outputs:
    into = [stale(2), stale(1)]
    with dist._coalescing_manager(async_ops=waits) as manager:
        dist.reduce_scatter_tensor(into[0], own())
        dist.reduce_scatter_tensor(into[1], own(2))
    finish(manager, waits=waits)
    return into


def all_gather_coalesced(*, waits: bool) -> Outputs:
    into = [stale(8), stale(4)]
    with dist._coalescing_manager(async_ops=waits) as manager:
        dist.all_gather_into_tensor(into[0], own())
        dist.all_gather_into_tensor(into[1], own(2))
    finish(manager, waits=waits)
    return into


def all_reduce_coalesced(*, waits: bool) -> Outputs:
    data = [own(), own(2)]
    with dist._coalescing_manager(async_ops=waits) as manager:
        for each in data:
            dist.all_reduce(each)
    finish(manager, waits=waits)
    return data


def all_to_all(*, waits: bool) -> Outputs:
    into = [stale(2), stale(2)]
    finish(dist.all_to_all(into, list(own().chunk(2)), async_op=waits), waits=waits)
    return into


def all_to_all_single(*, waits: bool) -> Outputs:
    into = stale(4)
    finish(dist.all_to_all_single(into, own(), async_op=waits), waits=waits)
    return [into]


def scatter(*, waits: bool) -> Outputs:
    into = stale(2)
    finish(
        dist.scatter(
            into, list(own().chunk(2)) if dist.get_rank() == 0 else None, 0, async_op=waits
        ),
        waits=waits,
    )
    return [into]


def gather(*, waits: bool) -> Outputs:
    into = [stale(4), stale(4)] if dist.get_rank() == 0 else None
    finish(dist.gather(own(), into, 0, async_op=waits), waits=waits)
    return into or []


def to_the_other(*, waits: bool) -> Outputs:
    into = stale(4)
    other = 1 - dist.get_rank()
    if waits:
        for work in (dist.isend(own(), other), dist.irecv(into, other)):
            assert work is not None
            work.wait()
    elif other:
        dist.send(own(), other)
        dist.recv(into, other)
    else:
        dist.recv(into, other)
        dist.send(own(), other)
    return [into]


def batched(*, waits: bool) -> Outputs:
    into = stale(4)
    other = 1 - dist.get_rank()
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, own(), other), dist.P2POp(dist.irecv, into, other)]
    ):
        work.wait()
    return [into]


def functional_all_reduce(*, waits: bool) -> Outputs:
    found = functional.all_reduce(own(), "sum", dist.group.WORLD)
    return [functional.wait_tensor(found) if waits else found + 0]


def functional_all_gather(*, waits: bool) -> Outputs:
    found = functional.all_gather_tensor(own(), 0, dist.group.WORLD)
    return [functional.wait_tensor(found) if waits else found + 0]


def functional_reduce_scatter(*, waits: bool) -> Outputs:
    found = functional.reduce_scatter_tensor(own(), "sum", 0, dist.group.WORLD)
    return [functional.wait_tensor(found) if waits else found + 0]


def functional_coalesced(*, waits: bool) -> Outputs:
    found = functional.all_reduce_coalesced([own(), own(2)], "sum", dist.group.WORLD)
    return [functional.wait_tensor(each) if waits else each + 0 for each in found]


def waited_for_in_a_future(*, waits: bool) -> Outputs:
    data = own()
    future = dist.all_reduce(data, async_op=True).get_future()
    found = future.then(lambda done: done.value()[0] * 1) if waits else future
    found.wait()
    return [data]


CASES: dict[Callable[..., Outputs], str] = {
    all_reduce: "c10d::allreduce_", reduce: "c10d::reduce_", broadcast: "c10d::broadcast_",
    all_gather: "c10d::allgather_",
    all_gather_into_tensor: "c10d::_allgather_base_",
    all_gather_in_place: "c10d::_allgather_base_", reduce_scatter: "c10d::reduce_scatter_",
    reduce_scatter_tensor: "c10d::_reduce_scatter_base_",
    reduce_scatter_coalesced: "c10d::reduce_scatter_tensor_coalesced_",
    all_gather_coalesced: "c10d::allgather_into_tensor_coalesced_",
    all_reduce_coalesced: "c10d::allreduce_coalesced_",
    all_to_all: "c10d::alltoall_", all_to_all_single: "c10d::alltoall_base_",
    scatter: "c10d::scatter_", gather: "c10d::gather_",
    to_the_other: "c10d::recv_", batched: "c10d::recv_",
    functional_all_reduce: "_c10d_functional::all_reduce",
    functional_all_gather: "_c10d_functional::all_gather_into_tensor",
    functional_reduce_scatter: "_c10d_functional::reduce_scatter_tensor",
    functional_coalesced: "_c10d_functional::all_reduce_coalesced",
    waited_for_in_a_future: "c10d::allreduce_",
}  # fmt: skip


def wrong(name: str, op: str, found: Recorded, arrived: list[tuple[float, ...]]) -> list[str]:
    """What the table says of the collective's outputs, where that is not what arrived."""
    (call,) = [call for call in found.calls if call.op.startswith(op + ".")]
    rows = list(found.outputs(call).values())
    told = [(row.min, row.max, row.l2norm) for row in rows]
    bad = [] if told == arrived else [f"{name}: {told} instead of {arrived}"]
    for row in found.inputs(call).values():
        if row.version in {each.version for each in rows}:
            bad.append(f"{name}: {row.slot} was sent and has the version of what came")
        if row.slot.startswith("1") and row.min is None:
            bad.append(f"{name}: what {row.slot} sent is not known")
    return bad


UNSERVED = ("reduce_scatter", "_reduce_scatter", "alltoall_")  # by gloo in torch 2.4


def main(folder: str, rank: str, book: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=int(rank), world_size=2
    )
    began = time.monotonic()
    for case, op in CASES.items():
        if IS_OLDEST and op.partition("::")[2].startswith(UNSERVED):
            continue
        for waits in (False, True):
            name = f"{case.__name__}({waits=})"
            bare = case(waits=waits)
            given: Outputs = []
            found = record(
                Path(folder) / name / rank,
                lambda case=case, waits=waits: given.extend(case(waits=waits)),
                plain=book == "plain",
            )
            if [each.tolist() for each in bare] != [each.tolist() for each in given]:
                print(f"{name}: gave {given} under recording, {bare} without")
            arrived = [(float(t.min()), float(t.max()), float(t.double().norm())) for t in bare]
            print(*wrong(name, op, found, arrived), sep="\n", end="")
    assert not hasattr(dist.Work.wait, "__wrapped__"), "wait is still watched"
    print(f"done {time.monotonic() - began:.1f}s", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
