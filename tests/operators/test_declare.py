# SPDX-License-Identifier: Apache-2.0
"""Declaring what operators are, and whose word counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import opscope
from opscope.compare.side.conditions import _KINDS
from opscope.errors import UsageError
from opscope.judge.families import UNJUDGED, tolerance_kind
from opscope.judge.tolerance import _RULES, tolerance_of
from opscope.kernels.bounds import BOUNDS
from opscope.operators.catalogue import (
    disputed,
    family,
    is_unknown,
    knowing,
    sheet,
    traits_of,
    works_in_place,
)
from opscope.operators.declare import read_operators
from opscope.operators.rows import checked_row
from opscope.operators.told import spellings
from opscope.operators.traits import CHOICES, TEXTS, Traits


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    with knowing():
        yield


def test_one_call_declares_all_overloads() -> None:
    assert is_unknown("mylib::scaled.default")
    opscope.declare("mylib::scaled", pointwise=True, tolerance="arithmetic")
    for op in ("mylib::scaled", "mylib::scaled.default", "mylib::scaled_.Tensor"):
        assert traits_of(op) == Traits(pointwise=True, tolerance="arithmetic")
        assert tolerance_kind(op) == "arithmetic"
    assert traits_of("other::scaled.default") == Traits()
    opscope.declare("mylib::scaled.out", pointwise=False)
    assert not traits_of("mylib::scaled.out").pointwise
    assert traits_of("mylib::scaled.out").tolerance == "arithmetic"


def test_what_follows_from_a_trait_follows_from_a_declared_one() -> None:
    opscope.declare("mylib::turned", view=True)
    assert traits_of("mylib::turned.default").moves
    opscope.declare("mylib::noise", random=True)
    assert not tolerance_of("mylib::noise.default", "float32").judged
    opscope.declare("mylib::into", writes="0")
    assert works_in_place("mylib::into.default")


def test_names_without_a_schema() -> None:
    opscope.declare("MyCustomOp", same="relu")
    assert family("Default/network/MyCustomOp") == "relu"
    opscope.declare("npu_mine", moves=True)
    assert traits_of("torch_npu.npu_mine").moves
    assert spellings("MyCustomOp") == ("MyCustomOp",)


def test_what_is_declared_overrules_the_catalogue() -> None:
    assert not traits_of("aten::mul.Tensor").guards
    opscope.declare("aten::mul", guards=True)
    assert traits_of("aten::mul.Tensor").guards


@pytest.mark.parametrize(
    ("op", "traits"),
    [
        ("mylib::x", {"movs": True}),
        ("mylib::x", {"moves": "yes"}),
        ("mylib::x", {"tolerance": "generous"}),
        ("mylib::x", {"error": "huge"}),
        ("mylib::x", {"rows": "first"}),
        ("mylib::x", {"writes": ""}),
        ("", {"moves": True}),
        ("my lib", {"moves": True}),
        ("x" * 300, {"moves": True}),
    ],
)
def test_what_cannot_be_declared(op: str, traits: dict[str, bool | str]) -> None:
    with pytest.raises(UsageError, match="declare"):
        opscope.declare(op, **traits)


def test_texts_are_those_that_somebody_reads() -> None:
    assert CHOICES["tolerance"] == (set(_RULES) | set(UNJUDGED)) - {"unknown", "unjudged"}
    assert CHOICES["error"] == set(_KINDS)
    assert CHOICES["bound"] == set(BOUNDS)
    assert set(CHOICES) < TEXTS


@pytest.mark.parametrize("name", ["aten", "api", "mindspore", "ge", "collectives", "torch"])
def test_every_shipped_row_could_be_declared(name: str) -> None:
    for row in sheet(name).rows.values():
        assert checked_row(row) == row


def test_a_run_fills_gaps_and_takes_nothing_from_the_catalogue() -> None:
    silencing = {"random": True, "allocates": True, "guards": True, "tolerance": "memory"}
    ops = ("aten::mul.Tensor", "aten::relu_", "torch.nn.functional.relu", "MatMul", "c10d::gather_")
    before = [traits_of(op) for op in ops]
    told = {**dict.fromkeys(ops, silencing), "aten::brand_new": {"pointwise": True, **silencing}}
    with knowing(recorded={**told, "mylib::own": silencing}):
        assert [traits_of(op) for op in ops] == before
        assert traits_of("aten::brand_new.default") == Traits(pointwise=True)
        assert traits_of("mylib::own.default").random
        assert disputed("aten::mul.Tensor", silencing) == silencing
    assert traits_of("mylib::own.default") == Traits()


def test_a_run_tells_of_a_primitive_of_jax_that_no_sheet_has() -> None:
    guard = {"guards": True, "picks": True}
    ops = ("jax::exp", "jax::dot_general", "jax::reduce_sum")
    before = [traits_of(op) for op in ops]
    with knowing(recorded={**dict.fromkeys(ops, guard), "jax::no_nan": guard}):
        assert [traits_of(op) for op in ops] == before
        assert traits_of("jax::no_nan") == Traits(guards=True, picks=True)
        assert disputed("jax::exp", guard) == guard
        assert not disputed("jax::no_nan", guard)


def test_what_a_run_tells_ends_with_the_question() -> None:
    with knowing(recorded={"mylib::own": {"moves": True}}):
        assert tolerance_kind("mylib::own") == "exact"
        with knowing(recorded={}):
            assert tolerance_kind("mylib::own") == "unknown"
        assert tolerance_kind("mylib::own") == "exact"
    assert tolerance_kind("mylib::own") == "unknown"


def test_a_file_of_operators(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("# mine\nmylib::scaled  pointwise tolerance=sum  # a note\nMyOp -moves\n")
    assert read_operators(file) == {
        "mylib::scaled": {"pointwise": True, "tolerance": "sum"},
        "MyOp": {"moves": False},
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a::b movs\n", "mine.txt:1: movs is no trait"),
        (b"a::b tolerance=none\n", "mine.txt: tolerance=none: one of "),
        (b"a::b moves\na::b random\n", "mine.txt:2: a::b stands there twice"),
        (b"/noise/ random\n", "patterns are not read"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"#" * ((1 << 20) + 1), "more than 1 MiB"),
        (None, "--operators needs a file that can be read"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, data: bytes | None, said: str) -> None:
    file = tmp_path / "mine.txt"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(UsageError) as raised:
        read_operators(file)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
