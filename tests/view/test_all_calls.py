# SPDX-License-Identifier: Apache-2.0
"""What calls gave, and what of it belongs together: held against the same counted row by row."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_runs import overflowing

from opscope.run.keys import key
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor
from opscope.view.all_calls import MASK, NEAR, NONE, SOUND, UNKNOWN, UNSOUND, AllCalls
from opscope.view.columns import Groups, read
from opscope.view.modules import model_document
from opscope.view.references import calls_named, calls_near
from opscope.view.series import series_of
from opscope.view.training import training_document

INFO = RunInfo(path="x", format="opscope")
COUNTS = st.sampled_from([None, 0, 0, 1, 5])
VALUES = st.sampled_from([None, 0.0, 1.5, -3.0, 65504.0, 2.0**-130, math.inf])
TENSORS = st.lists(
    st.builds(
        Tensor,
        process=st.integers(0, 1),
        index=st.integers(0, 5),
        io=st.sampled_from(["input", "output"]),
        slot=st.just("0"),
        dtype=st.sampled_from(["float16", "int64"]),
        size=st.sampled_from([None, 4, 508]),
        nan=COUNTS,
        pos_inf=COUNTS,
        neg_inf=COUNTS,
        near_limit=COUNTS,
        zero=st.sampled_from([None, 0, 1]),
        min=VALUES,
        max=VALUES,
    ),
    max_size=12,
)


def call(index: int, **more: Any) -> Call:
    facts = {"process": 0, "rank": 0, "step": 0, "level": "operator", "phase": "forward"}
    facts |= {"op": "aten::relu.default", "name": f"a:relu#{index}", "module": "a"}
    return Call(**{**facts, "index": index, **more})


def magnitude(tensor: Tensor) -> float:
    return max((abs(end) for end in (tensor.min, tensor.max) if end is not None), default=UNKNOWN)


def counted(tensor: Tensor, *names: str) -> int | None:
    counts = [getattr(tensor, name) for name in names]
    return None if None in counts else sum(counts)


def health(tensor: Tensor) -> int:
    if tensor.size is None:
        return NONE
    if counted(tensor, "nan", "pos_inf"):
        return UNSOUND
    return NEAR if tensor.near_limit else MASK if tensor.neg_inf else SOUND


def zeros(tensor: Tensor) -> int:
    if tensor.zero is None or not tensor.size or "float" not in tensor.dtype:
        return 0
    return 1 + math.floor(254 * tensor.zero / tensor.size + 0.5)


@given(TENSORS)
def test_what_calls_gave_is_that_of_their_rows_wherever_they_stand(tensors: list[Tensor]) -> None:
    calls = AllCalls(
        MemoryRun(
            INFO,
            calls=[call(n, process=p, rank=p) for n in (4, 1, 3) for p in (1, 0)],
            tensors=tensors,
        )
    )
    assert calls.keys.tolist() == [key(p, n) for p in (0, 1) for n in (1, 3, 4)]
    for row, number in enumerate(calls.keys.tolist()):
        made = [
            each
            for each in tensors
            if key(each.process, each.index) == number and each.io == "output"
        ]
        results = calls.results
        assert results.there[row] == bool(made)
        assert results.health[row] == max(map(health, made), default=NONE)
        assert results.zeros[row] == max(map(zeros, made), default=0)
        assert results.largest[row] == max(map(magnitude, made), default=UNKNOWN)
        assert results.unsound[row] == any(counted(each, "nan", "pos_inf") for each in made)
        assert results.lost[row] == sum(
            counted(each, "nan", "pos_inf", "neg_inf") or 0 for each in made
        )


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (None, None, 0),
        (0.0, 0.0, 1),
        (None, 0.0, 0),  # nothing is known of the other end
        (-2.0, 3.0, 129),
        (0.0, 2.0**-130, 1),
        (-math.inf, 0.0, 255),
        (math.nan, 1.0, 255),
    ],
)
def test_a_magnitude_is_a_byte(low: float | None, high: float | None, told: int) -> None:
    output = Tensor(process=0, index=1, io="output", slot="0", dtype="float32", min=low, max=high)
    calls = AllCalls(MemoryRun(INFO, calls=[call(1)], tensors=[output]))
    assert calls.results.magnitude.tolist() == [told]


def test_columns_are_in_the_order_of_the_calls_and_null_is_what_one_wants() -> None:
    run = MemoryRun(
        INFO,
        calls=[call(7, parent=5, module=None, step=1), call(5, level="module", module="")],
    )
    calls = AllCalls(run)
    assert calls.numbers("index").tolist() == [5, 7]
    assert calls.numbers("parent", -1).tolist() == [-1, 5]
    assert calls.numbers("parent").tolist() == [0, 5]
    assert calls.cells("parent", np.arange(2)) == [None, 5]
    assert calls.texts("module").at(np.arange(2)) == ["", None]
    assert calls.texts("module").filled().words == ("",)
    assert calls.finest == "operator"
    assert calls.of_finest.tolist() == [False, True]
    assert calls.rows(np.array([key(0, 5), key(0, 6), key(1, 5)])).tolist() == [0, -1, -1]


def test_a_run_without_calls() -> None:
    tensors = [Tensor(process=0, index=1, io="output", slot="0", dtype="float32", nan=1)]
    calls = AllCalls(MemoryRun(INFO, tensors=tensors))
    assert len(calls) == len(calls.results.health) == 0
    assert calls.rows(np.array([key(0, 1)])).tolist() == [-1]
    assert model_document(calls, ())["modules"] == {}
    assert training_document(calls) is None


def test_only_chosen_rows_are_read() -> None:
    found = read(
        overflowing(steps=2),
        "tensors",
        ("index", "slot", "pos_inf"),
        lambda batch: batch.are("io", "input"),
        np.array([0, 3], dtype=np.int64),
    )
    assert found.numbers["index"].tolist() == [0, 0, 3, 3]
    assert found.texts["slot"].at(np.arange(4)) == ["0", "1", "0", "1"]


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2), st.none() | st.integers(0, 9))))
def test_groups_are_those_of_a_dict(rows: list[tuple[int, int, int | None]]) -> None:
    by_place = defaultdict(list)
    for number, (first, second, value) in enumerate(rows):
        by_place[first, second].append((number, value))
    columns = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2).T
    known = np.array([row[2] is not None for row in rows], dtype=bool)
    values = np.ma.MaskedArray(np.array([row[2] or 0 for row in rows]), mask=~known)
    groups = Groups(*columns)
    members = [by_place[place] for place in sorted(by_place)]
    assert groups.first.tolist() == [each[0][0] for each in members]
    assert groups.sizes.tolist() == list(map(len, members))
    assert [part.tolist() for part in groups.members()] == [
        [n for n, _ in each] for each in members
    ]
    assert groups.numbers.tolist() == [sorted(by_place).index(row[:2]) for row in rows]
    assert groups.known(np.maximum, values, -1) == [
        max((value for _, value in each if value is not None), default=None) for each in members
    ]


def stepped(steps: int) -> MemoryRun:
    """Of each step one call with an output, whose range grows; in no order."""
    tensors = [
        Tensor(
            process=0, index=step, io="output", slot="0", dtype="float32", size=4, nan=step % 2,
            min=None if step == 2 else -float(step), max=step / 3,
        )
        for step in range(steps)
    ]  # fmt: skip
    random.Random(1).shuffle(tensors)
    calls = [call(step, step=100 + step, name="a:relu#0") for step in range(steps)]
    return MemoryRun(INFO, [Process(process=0, directory="p")], calls, tensors)


def test_steps_that_lie_together_are_one_point() -> None:
    calls = AllCalls(stepped(6))
    wanted = np.array([key(0, 3)], dtype=np.int64)
    ((owner, every),) = series_of(calls, wanted, 250).items()
    assert owner == ("a:relu#0", 0, "output", "0")
    assert every[:4] == [
        [100, 0.0, 0.0, 0], [101, -1.0, 0.33333, 1], [102, None, 0.66667, 0], [103, -3.0, 1.0, 1],
    ]  # fmt: skip
    ((_, few),) = series_of(calls, wanted, 3).items()
    assert few == [[100, -1.0, 0.33333, 1], [102, -3.0, 1.0, 1], [104, -5.0, 1.6667, 1]]
    assert series_of(calls, np.array([key(0, 99)], dtype=np.int64), 3) == {}


def test_the_calls_around_one_are_the_nearest_of_its_step() -> None:
    run = MemoryRun(INFO, calls=[call(n, step=n // 10) for n in range(30)])
    assert calls_near(AllCalls(run), 0, 1, 12, 3) == [(0, 12), (0, 11), (0, 13)]
    assert calls_near(AllCalls(run), 5, 1, 12, 3) == []


def test_a_search_finds_calls_by_words_of_name_operator_and_step() -> None:
    rows = [(3, 2, "b:Add#0"), (1, 1, "a:relu#0"), (2, 1, "b:relu#1"), (9, 12, "b:relu#0")]
    run = MemoryRun(INFO, calls=[call(n, step=step, name=name) for n, step, name in rows])
    calls = AllCalls(run)
    assert list(calls_named(calls, ["b:", "relu"], 9)) == ["0.2", "0.3", "0.9"]  # 3 by its operator
    assert list(calls_named(calls, ["2"], 9)) == ["0.3", "0.9"]
    assert list(calls_named(calls, ["relu"], 2)) == ["0.1", "0.2"]
    assert calls_named(calls, ["add#0"], 9) == {
        "0.3": ["b:Add#0", "aten::relu.default", 2, 0, "forward"]
    }
    assert calls_named(calls, ["nothing"], 9) == {}


def test_a_norm_is_that_of_the_last_call_of_a_step_that_knows_it() -> None:
    def gradient(index: int, norm: float | None, **more: Any) -> Tensor:
        return Tensor(
            process=0, index=index, io="input", slot="0", dtype="float32", role="gradient",
            tensor_name="w", size=4, l2norm=norm, **more,
        )  # fmt: skip

    run = MemoryRun(
        INFO,
        calls=[call(n, step=n // 10) for n in (1, 2, 3, 11)],
        tensors=[gradient(3, None, nan=2), gradient(2, 7.0), gradient(1, 5.0), gradient(11, None)],
    )
    found = training_document(AllCalls(run))
    assert found is not None
    assert found["gradient"] == [{"label": "w", "points": [[0, 7.0, 2], [1, None, 0]]}]
    assert found["parameter"] == []


def test_a_module_knows_its_first_call_that_lost_elements_in_each_part_of_the_steps() -> None:
    lost = Tensor(
        process=0, index=12, io="output", slot="0", dtype="float32", size=1, nan=1, pos_inf=0
    )
    tensors = [msgspec.structs.replace(lost, index=21), lost]
    run = MemoryRun(INFO, calls=[call(n, step=n // 10) for n in (1, 12, 21, 25)], tensors=tensors)
    found = model_document(AllCalls(run), ())
    assert found["modules"]["a"]["first"] == "0.12"
    assert found["modules"]["a"]["worst"] == UNSOUND
    assert found["modules"]["a"]["own"] == found["modules"][""]["calls"] == 4
