# SPDX-License-Identifier: Apache-2.0
"""The catalogue of operators: what its data may hold, whose name is meant, and that every row can
be reached.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from opscope.judge.families import UNJUDGED
from opscope.judge.tolerance import _RULES
from opscope.operators.catalogue import SHEETS, family, sheet, traits_of
from opscope.operators.rows import read_sheet
from opscope.operators.spelling import word_of

GRAPHS = ("mindspore", "ge")


def test_a_word_that_stands_twice_raises() -> None:
    with pytest.raises(ValueError, match=r"aten.txt:3: where stands there twice"):
        read_sheet(["where moves", "# a comment", "where guards"], "aten.txt")


@pytest.mark.parametrize(
    "traits", ["movs", "tolerance", "moves=1", "moves moves", "moves -moves", "-tolerance=sum"]
)
def test_what_is_no_trait_raises(traits: str) -> None:
    with pytest.raises(ValueError, match="is no trait, or stands there twice"):
        read_sheet([f"where {traits}"], "aten.txt")


def test_an_overload_is_another_operator_than_its_family() -> None:
    """aten::where of one argument answers with indices, as nonzero does."""
    assert traits_of("aten::where.self").moves
    assert not traits_of("aten::where.default").moves
    assert not traits_of("aten::where.default").places


def test_whose_name_is_meant() -> None:
    assert traits_of("aten::select.int").view
    assert (family("Select"), traits_of("Select").view, traits_of("Select").guards) == (
        "where",
        False,
        True,
    )
    assert traits_of("aten::gather.default").overwrites == ""
    assert traits_of("c10d::gather_").overwrites == "0"


@pytest.mark.parametrize(
    ("op", "word"),
    [
        ("aten::log_.default", "log"),
        ("torch.Tensor.log_", "log"),
        ("LogV2", "log"),
        ("MatMul", "mm"),
        ("Functional.linear", "linear"),
        ("Default/network/BatchMatMul", "bmm"),
        ("aten::__and__.Tensor", "__and__"),
        ("jax::dot_general", "mm"),
        ("jax::scatter-add", "scatter-add"),
        ("jax::select_n", "where"),
    ],
)
def test_one_word_for_every_spelling(op: str, word: str) -> None:
    assert family(op) == word


@pytest.mark.parametrize("name", SHEETS)
def test_every_row_can_be_reached(name: str) -> None:
    """A row is reached by a name that is reduced to its word, in its own world first."""
    for row in sheet(name).rows:
        word, _, overload = row.partition(".")
        spelled = dict.fromkeys(("aten", "torch"), f"aten::{word}.{overload or 'default'}")
        spelled |= {"api": f"torch.{word}", "collectives": f"c10d::{word}", "jax": f"jax::{word}"}
        op = spelled.get(name, word[:1].upper() + word[1:])
        assert word_of(op) == word, f"{name}.txt: no name is reduced to {word}"
        if name in GRAPHS:
            assert "_" not in word, f"{name}.txt: types of graphs have no underscores: {word}"


def test_a_primitive_of_jax_is_not_what_another_world_calls_so() -> None:
    """c10d's reduce_scatter has its output for the first argument, JAX's reads it."""
    assert traits_of("c10d::reduce_scatter_").overwrites == "0"
    scattered = traits_of("jax::reduce_scatter")
    assert (scattered.overwrites, scattered.tolerance) == ("", "sum")
    assert not traits_of("jax::reduce").shaped
    assert not traits_of("jax::custom_linear_solve").contraction
    assert traits_of("jax::custom_linear_solve").tolerance == "conditioning"


@pytest.mark.parametrize("name", SHEETS)
def test_a_row_says_something(name: str) -> None:
    assert not [word for word, row in sheet(name).rows.items() if not row]


@pytest.mark.parametrize("name", SHEETS)
def test_the_same_operator_is_a_row_or_a_word_of_torch(name: str) -> None:
    """What a graph's type is the same as is not itself the same as a third."""
    for word, row in sheet(name).rows.items():
        same = str(row.get("same", word))
        assert "same" not in sheet("aten").rows.get(same, {}), word


def test_every_kind_of_tolerance_has_its_rule() -> None:
    rows = [row for name in (*SHEETS, "patterns") for row in sheet(name).rows.values()]
    rows += [row for _, row in sheet("patterns").patterns]
    assert {row["tolerance"] for row in rows if "tolerance" in row} <= set(_RULES) | set(UNJUDGED)


@pytest.mark.parametrize(
    ("op", "writes"),
    [
        ("ResourceApplyGradientDescent", "0"),
        ("ResourceApplyAdagradV2", "0,1"),
        ("ResourceApplyAddSign", "0,1"),
        ("ResourceSparseApplyMomentum", "0,1"),
        ("ResourceApplyAdagradDA", "0,1,2"),
        ("ResourceApplyAdaMax", "0,1,2"),
        ("ResourceSparseApplyFtrlV2", "0,1,2"),
        ("ResourceApplyAdamWithAmsgrad", "0,1,2,3"),
        ("ApplyRotaryPosEmb", ""),
    ],
)
def test_which_variables_an_update_of_tensorflow_writes(op: str, writes: str) -> None:
    assert traits_of(f"tf::{op}").writes == writes


def test_every_flag_is_set_somewhere() -> None:
    rows = [row for name in SHEETS for row in sheet(name).rows.values()]
    for flag in ("moves", "view", "allocates", "random", "contraction"):
        assert any(row.get(flag) for row in rows)


def test_loads_without_any_framework() -> None:
    code = (
        "import sys, opscope.operators.catalogue as c; c.traits_of('aten::add.Tensor'); "
        "print({'torch', 'numpy', 'mindspore'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )
