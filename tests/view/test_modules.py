# SPDX-License-Identifier: Apache-2.0
"""The module tree, the training's lines and the ranks, from small runs in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from view_runs import overflowing, tensor

from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor
from opscope.scan.api import scan
from opscope.view.all_calls import AllCalls
from opscope.view.modules import above, model_document
from opscope.view.ranks import ranks_document
from opscope.view.training import training_document


def call(index: int, module: str, op: str = "aten::add.Tensor", rank: int = 0) -> Call:
    return Call(
        process=rank, rank=rank, step=0, index=index, level="operator", phase="forward", op=op,
        module=module, name=f"{module}:{op}#{index}",
    )  # fmt: skip


def model(run: MemoryRun, **more: Any) -> dict[str, Any]:
    return model_document(AllCalls(run), scan(run).findings)


def test_the_worst_of_a_part_is_that_of_all_that_hold_it() -> None:
    found = model(overflowing(steps=3))
    assert found["modules"]["blocks.0"]["worst"] == 5
    assert found["modules"][""]["worst"] == 5
    assert found["modules"][""]["calls"] == 9
    assert found["modules"]["blocks"]["own"] == 0
    assert found["modules"]["blocks"]["parts"] == ["blocks.0"]
    assert found["modules"]["blocks.0"]["first"] == "0.6"
    assert len(found["modules"]["blocks.0"]["line"]) == 3


def test_paths_above() -> None:
    assert list(above("a.b.c")) == ["a.b.c", "a.b", "a", ""]
    assert list(above("")) == [""]


def test_data_flows_between_parts_through_the_calls_of_the_module_itself() -> None:
    """a -> own add -> b, while the module's other own call, of nothing, joins nothing."""
    calls = [call(0, "m.a"), call(1, "m"), call(2, "m.b"), call(3, "m"), call(4, "m.c")]
    tensors = [
        tensor(0, "output", "0", 10),
        tensor(1, "input", "0", 10),
        tensor(1, "output", "0", 11),
        tensor(2, "input", "0", 11),
        tensor(2, "output", "0", 12),
        tensor(3, "output", "0", 13),
        tensor(4, "input", "0", 13),
        tensor(4, "input", "1", 12),
    ]
    found = model(MemoryRun(RunInfo(path="x", format="opscope"), (), calls, tensors))
    edges = {(edge.source, edge.target) for edge in found["flows"]["m"].edges}
    assert edges == {("m.a", "m.b"), ("m.b", "m.c")}
    assert [node.id for node in found["flows"]["m"].nodes] == ["m.a", "m.b", "m.c"]


def test_training_has_the_loss_over_the_steps() -> None:
    found = training_document(AllCalls(overflowing(steps=3)))
    assert found is not None
    (line,) = found["losses"]
    assert [point[0] for point in line["points"]] == [0, 1, 2]
    assert line["points"][2][1:] == [None, 1]
    assert training_document(AllCalls(overflowing(steps=1))) is None


@pytest.mark.parametrize(
    ("op", "stops"),
    [("aten::relu.default", True), ("ReLU", True), ("tf::Relu", True), ("aten::add.Tensor", False)],
)
def test_training_has_the_share_of_zeros_of_what_stops_some(op: str, *, stops: bool) -> None:
    """In the words of any world that the catalogue knows."""
    calls = [
        msgspec.structs.replace(call(step, "act", op), step=step, name=f"act:{op}#0")
        for step in range(2)
    ]
    rows = [
        Tensor(process=0, index=step, io="output", slot="0", dtype="float32", size=4, zero=step)
        for step in range(2)
    ]
    processes = [Process(process=0, directory="p0", rank=0)]
    run = MemoryRun(RunInfo(path="x", format="opscope"), processes, calls, rows)
    found = training_document(AllCalls(run))
    assert found is not None
    points = [line["points"] for line in found["zeros"]]
    assert points == ([[[0, 0.0, 0], [1, 0.25, 0]]] if stops else [])


def two_ranks(second: str) -> MemoryRun:
    op = "c10d::allreduce_.default"
    calls = [call(0, "", op), call(1, "", op), call(0, "", op, rank=1), call(1, "", second, rank=1)]
    calls = [
        msgspec.structs.replace(one, phase="communication") if "c10d" in one.op else one
        for one in calls
    ]
    processes = [Process(process=rank, directory=f"p{rank}", rank=rank) for rank in (0, 1)]
    return MemoryRun(RunInfo(path="x", format="opscope"), processes, calls)


def test_ranks_part_at_the_first_collective_that_is_another() -> None:
    found = ranks_document(AllCalls(two_ranks("c10d::broadcast_.default")), ())
    assert found is not None
    assert found["parts"] == 1
    assert [one["op"] for one in found["lanes"]["1"]][1] == "c10d::broadcast_.default"
    assert found["cells"]["1/0"][0] == 2
    found = ranks_document(AllCalls(two_ranks("c10d::allreduce_.default")), ())
    assert found is not None
    assert found["parts"] is None
    found = ranks_document(AllCalls(two_ranks("aten::add.Tensor")), ())
    assert found is not None
    assert found["parts"] == 1  # rank 1 calls none
    assert ranks_document(AllCalls(overflowing()), ()) is None
