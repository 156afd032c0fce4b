# SPDX-License-Identifier: Apache-2.0
"""Shrinking: what is kept still fails in the same way, and nothing that is needed is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oldest import not_in_oldest
from tests.repro.single_calls import record

import opscope.repro
from opscope.errors import FormatError, UsageError
from opscope.minimize.api import minimize
from opscope.minimize.candidate import (
    Candidate,
    freed,
    load_candidate,
    settled,
    size_of,
    strides_like,
    write_trial,
)
from opscope.minimize.leaves import integer_leaves, replaced
from opscope.minimize.minimized import Limits
from opscope.minimize.oracle import Oracle, same_failure
from opscope.minimize.search import OutOfTime, Search
from opscope.minimize.shrink_shapes import cut, follow, inside, shrink_shapes
from opscope.minimize.simplify import (
    free_memory,
    plain_arguments,
    plain_strides,
    rounded,
    shrink_values,
    usual_type,
)
from opscope.repro.case import Failure, RaisedError
from opscope.repro.ddmin import ddmin
from opscope.repro.worker import Trial


@given(st.integers(2, 300), st.sets(st.integers(0, 299), min_size=1, max_size=5))
def test_ddmin_keeps_what_is_needed_and_nothing_else(length: int, needed: set[int]) -> None:
    needed = {item % length for item in needed}
    asked: list[list[int]] = []

    def fails(items: list[int]) -> bool:
        asked.append(items)
        return needed <= set(items)

    assert ddmin(range(length), fails, patience=length) == sorted(needed)
    assert all(0 < len(items) < length for items in asked)


def test_ddmin_gives_up_early_on_a_list_that_is_all_needed() -> None:
    asked = []
    assert ddmin(range(1000), lambda items: bool(asked.append(items)), patience=8) == list(
        range(1000)
    )  # type: ignore[func-returns-value]
    assert len(asked) < 60


class Predicate:
    """An oracle that needs no process: a function of the candidate."""

    def __init__(self, fails: Any) -> None:
        self.question = fails
        self.last: Trial | None = None
        self.trials = 0

    def fails(self, candidate: Candidate) -> Trial | None:
        self.trials += 1
        shown = self.question(settled(candidate))
        self.last = Trial(status="cannot" if shown is None else "done", shown=int(bool(shown)))
        return self.last if shown else None


def searching(candidate: Candidate, fails: Any) -> Search:
    return Search(
        Predicate(fails), candidate, Trial(status="done"), seconds=60, tell=lambda line: None
    )  # type: ignore[arg-type]


def candidate_of(folder: Path, op: str, *args: Any, **kwargs: Any) -> Candidate:
    opscope.repro.write(*record(op, *args, **kwargs), folder)
    return load_candidate(folder)


def arrays(candidate: Candidate) -> dict[str, np.ndarray[Any, Any]]:
    return {
        part.row.slot: np.broadcast_to(part.values, part.row.shape)
        for part in candidate.parts
        if part.values is not None
    }


def test_one_guilty_element_of_a_million(tmp_path: Path) -> None:
    x = torch.randn(1000, 1000).clamp(-3, 3)
    x[417, 733] = 5
    search = searching(
        candidate_of(tmp_path / "case", "aten::relu.default", x),
        lambda found: (arrays(found)["0"] > 4).any(),
    )
    free_memory(search)
    shrink_shapes(search)
    assert size_of(search.best).shapes == {"0": (1, 1)}
    assert arrays(search.best)["0"].item() == 5


def test_axes_that_belong_together_are_cut_together_and_arguments_follow(tmp_path: Path) -> None:
    x = torch.ones(2, 32, 8, 8)
    x[1, 3, 4, 5] = 9
    start = candidate_of(
        tmp_path / "case",
        "aten::native_group_norm.default",
        x,
        torch.ones(32),
        torch.ones(32),
        2,
        32,
        64,
        4,
        1e-5,
    )

    def fails(found: Candidate) -> bool | None:
        x, weight, bias = (arrays(found)[slot] for slot in "012")
        n, c, hw, groups = found.case.args["args"][3:7]
        if (
            x.shape[:2] != (n, c)
            or x.shape[2] * x.shape[3] != hw
            or weight.shape != (c,)
            or bias.shape != (c,)
            or c % groups
        ):
            return None
        return bool((x == 9).any())

    search = searching(start, fails)
    free_memory(search)
    shrink_shapes(search)
    assert size_of(search.best).elements <= 3 + 2 * 4
    assert fails(search.best)


def test_a_wrong_tile_keeps_its_place(tmp_path: Path) -> None:
    start = candidate_of(
        tmp_path / "case", "aten::mm.default", torch.randn(96, 40), torch.randn(40, 50)
    )

    def fails(found: Candidate) -> bool | None:
        a, b = arrays(found)["0"], arrays(found)["1"]
        return a.shape[0] > 64 and b.shape[1] > 7 if a.shape[1] == b.shape[0] else None

    search = searching(start, fails)
    free_memory(search)
    shrink_shapes(search)
    shrink_values(search)
    assert size_of(search.best).shapes == {"0": (65, 1), "1": (1, 8)}
    assert size_of(search.best).telling == 0


def test_windows_are_cut_with_what_they_lie_on(tmp_path: Path) -> None:
    grad, x = torch.zeros(1, 1, 64, 32), torch.zeros(1, 1, 129, 65)
    grad[0, 0, 41, 7] = 9
    args = (
        grad,
        x,
        [3, 3],
        [2, 2],
        [0, 0],
        [1, 1],
        False,
        torch.zeros(1, 1, 64, 32, dtype=torch.int64),
    )
    base = freed(
        candidate_of(tmp_path / "case", "aten::max_pool2d_with_indices_backward.default", *args)
    )

    def fails(candidate: Candidate) -> bool | None:
        given = arrays(candidate)
        expected = tuple((length - 3) // 2 + 1 for length in given["1"].shape[2:])
        return (
            bool((given["0"] == 9).any())
            if given["0"].shape[2:] == given["7"].shape[2:] == expected
            else None
        )

    search = searching(base, fails)
    shrink_shapes(search)
    assert size_of(search.best).elements <= 11
    assert inside([0, 3], 4, 9) == [0, 1, 6, 7, 8]


def indexed(weight: Any, places: Any) -> bool | None:
    """Whether all indices are rows of the weight; None, as the kernel would refuse them, where
    not.
    """
    return None if places.size and (places.min() < 0 or places.max() >= len(weight)) else True


def test_indices_name_the_rows_that_are_kept_by_their_new_places(tmp_path: Path) -> None:
    places = torch.randint(0, 90, (8, 16))
    places[5, 3] = 99
    start = candidate_of(tmp_path / "case", "aten::embedding.default", torch.randn(100, 20), places)

    def fails(found: Candidate) -> bool | None:
        weight, wanted = arrays(found)["0"], arrays(found)["1"]
        return indexed(weight, wanted) and bool((wanted == len(weight) - 1).any())

    search = searching(start, fails)
    free_memory(search)
    shrink_shapes(search)
    assert size_of(search.best).shapes == {"0": (1, 1), "1": (1, 1)}
    assert fails(search.best)


def test_an_index_that_matters_by_its_number_keeps_the_rows_before_it(tmp_path: Path) -> None:
    places = torch.randint(0, 60, (40,))
    places[7] = 77
    start = candidate_of(
        tmp_path / "case", "aten::index_select.default", torch.randn(100, 20), 0, places
    )

    def fails(found: Candidate) -> bool | None:
        rows, wanted = arrays(found)["0"], arrays(found)["2"]
        return indexed(rows, wanted) and bool((wanted == 77).any())

    search = searching(start, fails)
    free_memory(search)
    shrink_shapes(search)
    assert size_of(search.best).shapes == {"0": (78, 1), "2": (1,)}


def test_a_length_that_matters_is_found_in_few_trials(tmp_path: Path) -> None:
    """An index that matters by its number, and a length: no chunk can be left out before the index,
    some can behind it.
    """
    start = candidate_of(
        tmp_path / "case",
        "aten::embedding.default",
        torch.randn(6000, 1),
        torch.tensor([4321, 5, 7]),
    )

    def fails(found: Candidate) -> bool | None:
        weight, wanted = arrays(found)["0"], arrays(found)["1"]
        return indexed(weight, wanted) and bool((wanted == 4321).any()) and len(weight) > 5000

    search = searching(start, fails)
    free_memory(search)
    shrink_shapes(search)
    assert size_of(search.best).shapes == {"0": (5001, 1), "1": (1,)}
    assert search.oracle.trials < 500


def test_values_become_few_and_round(tmp_path: Path) -> None:
    x = torch.rand(300) * 0.1234 + 0.5
    x[[17, 200]] = 3.14159
    search = searching(
        candidate_of(tmp_path / "case", "aten::relu.default", x),
        lambda found: len(arrays(found)["0"]) == 300 and (arrays(found)["0"] > 2).sum() == 2,
    )
    shrink_values(search)
    found = arrays(search.best)["0"]
    assert sorted(set(found.tolist())) == [0.0, 3.0]


def test_shared_memory_stays_shared_where_the_failure_needs_it(tmp_path: Path) -> None:
    memory = torch.arange(64.0)
    start = candidate_of(tmp_path / "case", "aten::add.Tensor", memory[:32], memory[16:48])
    search = searching(start, lambda found: len({part.row.buffer for part in found.parts}) == 1)
    free_memory(search)
    plain_strides(search)
    assert search.best.bound
    shrink_shapes(search)
    shapes = size_of(search.best).shapes
    assert shapes["0"] == shapes["1"] == (1,)
    rows = [part.row for part in search.best.parts]
    assert rows[0].buffer == rows[1].buffer


def test_types_and_arguments_become_the_usual_ones(tmp_path: Path) -> None:
    start = candidate_of(
        tmp_path / "case",
        "aten::add.Tensor",
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.bfloat16),
        alpha=7,
    )
    search = searching(start, lambda found: True)
    free_memory(search)
    plain_arguments(search)
    usual_type(search)
    assert {part.row.dtype for part in search.best.parts} == {"float32"}
    assert search.best.case.args["kwargs"] == {}
    needed = searching(
        start,
        lambda found: (
            all(part.row.dtype == "bfloat16" for part in found.parts)
            and "alpha" in found.case.args["kwargs"]
        ),
    )
    free_memory(needed)
    plain_arguments(needed)
    usual_type(needed)
    assert needed.best.case.args["kwargs"] == {"alpha": 0}


def test_search_ends_when_its_time_is_up(tmp_path: Path) -> None:
    search = searching(
        candidate_of(tmp_path / "case", "aten::relu.default", torch.ones(4)), lambda found: True
    )
    search._deadline = 0
    with pytest.raises(OutOfTime):
        shrink_shapes(search)


def test_candidates_are_written_as_they_are(tmp_path: Path) -> None:
    start = candidate_of(
        tmp_path / "case",
        "aten::mul.Tensor",
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor(2.0).expand(3, 2),
    )
    (tmp_path / "trial").mkdir()
    free = settled(msgspec.structs.replace(start, bound=False))
    for candidate in (start, free, cut(free, [(0, 0), (1, 0)], [0, 2])):
        assert candidate is not None
        write_trial(candidate, tmp_path / "trial")
        found = load_candidate(tmp_path / "trial")
        for slot, values in arrays(settled(candidate)).items():
            assert np.array_equal(arrays(found)[slot], values)
    assert arrays(found)["0"].tolist() == [[0, 3], [2, 5]]


def test_strides_keep_the_order_of_memory() -> None:
    assert strides_like((3, 2), (1, 3)) == (1, 3)
    assert strides_like((2, 5, 4), (100, 1, 7)) == (20, 1, 5)
    assert strides_like((3, 4), (0, 1)) == (0, 1)
    assert strides_like((), ()) == ()


def test_sizes_among_the_arguments_follow() -> None:
    args: dict[str, Any] = {
        "args": [{"tensor": "0"}, 32, [32, 64], 1024, 5, True, 1.5],
        "kwargs": {"n": 32},
    }
    found = list(follow(args, 32, 16, 2))
    assert {
        "args": [{"tensor": "0"}, 16, [16, 32], 256, 5, True, 1.5],
        "kwargs": {"n": 16},
    } in found
    assert {
        "args": [{"tensor": "0"}, 16, [16, 64], 1024, 5, True, 1.5],
        "kwargs": {"n": 16},
    } in found
    assert args in found
    assert replaced(args, {("args", 2, 1): 7})["args"][2] == [32, 7]
    assert (("kwargs", "n"), 32) in integer_leaves(args)


def test_rounding_keeps_what_is_not_finite() -> None:
    found = rounded(np.array([3.14159, -0.00271828, np.inf, np.nan, 0.0], dtype=np.float32), 2)
    assert np.allclose(found[:2], [3.1, -0.0027])
    assert found[2] == np.inf
    assert np.isnan(found[3])
    assert found[4] == 0


def nonfinite(exact: str, *classes: str, shown: int = 1) -> Trial:
    return Trial(
        status="done", shown=shown, pattern={"0": {"classes": list(classes), "exact": exact}}
    )


def test_what_is_the_same_failure() -> None:
    failure = Failure(kind="nonfinite", outputs={"0": ("nan",)})
    assert same_failure(failure, nonfinite("finite", "nan"), nonfinite("finite", "nan"))
    assert not same_failure(failure, nonfinite("finite", "nan"), nonfinite("non-finite", "nan")), (
        "0 / 0 is another failure"
    )
    assert not same_failure(failure, nonfinite("finite", "nan"), nonfinite("finite", "pos_inf"))
    assert not same_failure(
        failure, nonfinite("finite", "nan"), nonfinite("finite", "nan", shown=0)
    )
    crash = Failure(kind="crash")
    assert same_failure(crash, Trial(status="died", code=-6), Trial(status="died", code=-6))
    assert not same_failure(crash, Trial(status="died", code=-6), Trial(status="died", code=-11))
    assert not same_failure(crash, Trial(status="died", code=-6), Trial(status="hang"))
    assert same_failure(Failure(kind="hang"), Trial(status="hang"), Trial(status="hang"))
    wrong = Trial(status="done", shown=1, grade=900.0, pattern={"0": {"classes": []}})
    assert same_failure(Failure(kind="mismatch"), wrong, msgspec.structs.replace(wrong, grade=3.0))
    assert not same_failure(
        Failure(kind="mismatch"), wrong, msgspec.structs.replace(wrong, grade=1.1)
    ), "close to rounding"
    assert not same_failure(
        Failure(kind="mismatch"),
        wrong,
        msgspec.structs.replace(wrong, pattern={"0": {"classes": ["nan"]}}),
    )


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"repro\.py is not there"):
        minimize(tmp_path / "nothing", tmp_path / "out")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "repro.py").write_text("")
    with pytest.raises(FormatError, match=r"case\.json"):
        minimize(tmp_path / "torn", tmp_path / "out")
    candidate_of(tmp_path / "case", "aten::relu.default", torch.ones(4))
    inputs = tmp_path / "case" / "inputs.safetensors"
    for content in (b"", b"\xff" * 8, inputs.read_bytes()[:-4]):
        inputs.write_bytes(content)
        with pytest.raises(FormatError, match="inputs"):
            load_candidate(tmp_path / "case")


@pytest.mark.zoo
def test_an_exception_is_shrunk_by_the_real_workers(tmp_path: Path) -> None:
    opscope.repro.write(
        *record("aten::mm.default", torch.randn(30, 20), torch.randn(10, 40)), tmp_path / "case"
    )
    found = minimize(tmp_path / "case", tmp_path / "small", limits=Limits(search=900, call=240))
    assert (found.ended, found.shown, found.tried) == ("done", 3, 3)
    assert found.before is not None
    assert found.after is not None
    assert found.before.elements == 1000
    assert found.after.elements <= 4
    assert found.outcome is not None
    assert (found.outcome.status, found.directory) == ("reproduced", str(tmp_path / "small"))
    assert "shrunk from 1000 elements" in (tmp_path / "small" / "README.md").read_text()
    assert "shapes cannot be multiplied" in (tmp_path / "small" / "ISSUE.md").read_text()


WRONG = """
import warnings, torch
warnings.simplefilter("ignore")
backward = torch.library.get_kernel("aten::native_group_norm_backward", "CPU")
library = torch.library.Library("aten", "IMPL")

def wrong(keys, grad, *rest):
    x, weight, bias = backward.call_boxed(keys, grad, *rest)
    return x + (grad > 9) * 0.5, weight, bias

library.impl("native_group_norm_backward", wrong, "CPU", with_keyset=True)
"""


@pytest.mark.zoo
@not_in_oldest("no torch.library.get_kernel")
def test_shapes_that_lead_a_healthy_kernel_into_foreign_memory_are_no_smaller_case(
    tmp_path: Path,
) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    grad = torch.randn(2, 8, 2, 2)
    grad[1, 5, 0, 1] = 10
    op, tensors = (
        "aten::native_group_norm_backward.default",
        (grad, torch.randn(2, 8, 2, 2), torch.randn(2, 4), torch.rand(2, 4)),
    )
    run, call = record(op, *tensors, torch.ones(8), 2, 8, 4, 4, [True] * 3)
    opscope.repro.write(run, call, tmp_path / "case")
    start = freed(load_candidate(tmp_path / "case"))
    start = msgspec.structs.replace(
        start,
        case=msgspec.structs.replace(
            start.case, failure=Failure(kind="mismatch", outputs={"0": ()})
        ),
    )
    channels, groups = ((0, 1), (1, 1), (4, 0)), ((2, 1), (3, 1))
    with Oracle(start, imports=(str(tmp_path / "wrong.py"),), limit=240) as oracle:
        oracle.learn(start)
        oracle.first = oracle.make(start)
        assert (oracle.first.status, oracle.first.shown) == ("done", 1)
        fewer = cut(start, channels, [2, 5])
        assert fewer is not None
        args = [*start.case.args["args"][:6], 2, *start.case.args["args"][7:]]
        assert (
            oracle.fails(fewer.with_args({"args": args, "kwargs": {}})) is None
        )  # two channels in four groups
        assert oracle.last is not None
        assert "undefined" in oracle.last.told
        apart = cut(fewer, groups, [1, 3])
        assert apart is not None
        assert (
            oracle.fails(apart.with_args({"args": [*args[:8], 2, args[9]], "kwargs": {}}))
            is not None
        )


RAISES = """
import warnings, torch
warnings.simplefilter("ignore")
embedding = torch.library.get_kernel("aten::embedding", "CPU")
library = torch.library.Library("aten", "IMPL")

def wrong(keys, weight, places, *rest):
    if (places == 9).any():
        raise IndexError("index out of range in self")
    return embedding.call_boxed(keys, weight, places, *rest)

library.impl("embedding", wrong, "CompositeExplicitAutograd", with_keyset=True)
"""


@pytest.mark.zoo
@not_in_oldest("no torch.library.get_kernel")
def test_an_exception_that_a_healthy_kernel_raises_too_is_another_failure(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(RAISES)
    run, call = record("aten::embedding.default", torch.randn(12, 3), torch.tensor([4, 9, 11]))
    opscope.repro.write(run, call, tmp_path / "case")
    start = freed(load_candidate(tmp_path / "case"))
    raised = Failure(
        kind="exception", error=RaisedError("IndexError", "index out of range in self")
    )
    start = msgspec.structs.replace(start, case=msgspec.structs.replace(start.case, failure=raised))
    with Oracle(start, imports=(str(tmp_path / "wrong.py"),), limit=240) as oracle:
        oracle.learn(start)
        oracle.first = oracle.make(start)
        assert (oracle.first.status, oracle.first.shown) == ("done", 1)
        places = cut(start, ((1, 0),), [1])
        assert places is not None
        assert oracle.fails(places) is not None
        rows = cut(places, ((0, 0),), [0])
        assert rows is not None
        assert oracle.fails(rows) is None  # row 9 of a table of one
