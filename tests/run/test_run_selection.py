# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_rows import call

from opscope.errors import UsageError
from opscope.run.selection import (
    Selection,
    near_names,
    parse_pattern,
    parse_ranges,
    parse_ranks,
    parse_selection,
)


def test_steps_of_the_manuals() -> None:
    selection = parse_selection(steps="0|5-8|100-120")
    assert [step for step in range(130) if selection.wants_step(step)] == [
        0,
        5,
        6,
        7,
        8,
        *range(100, 121),
    ]
    assert selection.last_step == 120
    assert Selection().last_step is None
    assert Selection().everything


def test_ranks() -> None:
    selection = parse_selection(ranks="0,7")
    assert [rank for rank in range(9) if selection.wants_rank(rank)] == [0, 7]


@pytest.mark.parametrize(
    "text", ["", "a", "5-", "-3", "8-5", "1||2", "0.5", "99999999999", "1;2", "٣"]
)
def test_bad_ranges_name_the_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_selection(steps=text)
    assert repr(text) in str(caught.value)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["tp", "pp", "cp", "dp", "dp_shard"]), st.integers(1, 4)),
        min_size=1,
        max_size=5,
    )
)
def test_one_rank_of_each_role(dimensions: list[tuple[str, int]]) -> None:
    """Of all ranks that differ along dp alone, the first."""
    text = ",".join(f"{name}={extent}" for name, extent in dimensions)
    if not any(name.startswith("dp") for name, _ in dimensions):
        with pytest.raises(UsageError, match="called dp"):
            parse_ranks(text)
        return
    places = itertools.product(*(range(extent) for _, extent in reversed(dimensions)))
    names = [name for name, _ in reversed(dimensions)]
    firsts = {
        rank
        for rank, place in enumerate(places)
        if not any(at for name, at in zip(names, place, strict=True) if name.startswith("dp"))
    }
    world = range(math.prod(extent for _, extent in dimensions))
    selection = Selection(ranks=parse_ranks(text))
    assert {rank for rank in world if selection.wants_rank(rank)} == firsts


@pytest.mark.parametrize(
    "text", ["dp=0", "tp=2,dp", "dp=4|1", "dp=4000000000", "x=70000,dp=2,y=9,dp=2,z=70000"]
)
def test_bad_dimensions_name_the_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_selection(ranks=text)
    assert repr(text) in str(caught.value)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 30)), min_size=1, max_size=5),
    st.integers(0, 600),
)
def test_ranges_hold_what_they_say(pairs: list[tuple[int, int]], step: int) -> None:
    text = "|".join(f"{first}-{first + more}" if more else str(first) for first, more in pairs)
    expected = any(first <= step <= first + more for first, more in pairs)
    assert Selection(steps=parse_ranges(text, what="steps")).wants_step(step) == expected


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("add", True),
        ("ADD", True),
        ("aten::add", True),
        ("aten::add.Tensor", True),
        ("add.Tensor", True),
        ("a?d", True),
        ("*", True),
        ("blocks.2.*", True),
        ("blocks.2.attn:add#1", True),
        ("mul", False),
        ("ad", False),
        ("mul,add", True),
        ("mul , blocks.3.*", False),
        ("name-regex(^blocks[.](2|3)[.])", True),
        ("name-regex(#9$)", False),
        ("name-regex(a{2,3}),mul", False),
        ("name-regex(t,n)|x", None),
        ("[a-c]dd", True),
        ("name-regex(attn[,:]add)", True),
    ],
)
def test_patterns(pattern: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(UsageError):
            parse_pattern(pattern)
        return
    assert (
        parse_pattern(pattern).matches("aten::add.Tensor", "blocks.2.attn:add#1", "blocks.2.attn")
        is matches
    )


@pytest.mark.parametrize(
    "text", ["", " , ", "name-regex((", "name-regex([)", "name-regex(*)", "name-regex(a"]
)
def test_bad_patterns(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pattern(text)


def test_api_names_match_by_their_last_part() -> None:
    assert parse_pattern("gelu").matches("torch.nn.functional.gelu", "<root>:gelu#1", "")
    assert parse_pattern("conv2d").matches("Conv2D", "Default/net/Conv2D-op12")


def test_parts_that_never_matched_can_be_told() -> None:
    pattern = parse_pattern("add,gelux")
    seen = {
        part
        for op in ("aten::add.Tensor", "aten::gelu.default")
        for part in pattern.matching_parts(op)
    }
    assert [part for part in pattern.parts if part not in seen] == ["gelux"]
    assert (
        near_names("gelux", ["aten::gelu.default", "aten::add.Tensor"])[0] == "aten::gelu.default"
    )


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("h.0.atn", ("model.h.0.attn", "model.h.1.attn")),
        ("Modle.h.1.attn", ("model.h.1.attn", "model.h.0.attn")),
        ("norm", ("native_layer_norm_backward",)),
        ("sofmax*", ("_softmax",)),
        ("h.1.atn:nm#1", ()),
        ("zz", ()),
        ("", ()),
    ],
)
def test_names_are_near_as_a_whole_or_by_as_many_words_of_them(
    text: str, near: tuple[str, ...]
) -> None:
    names = ["model.h.0.attn", "model.h.1.attn", "", "_softmax", "native_layer_norm_backward"]
    assert near_names(text, names) == near


def test_calls_by_every_criterion() -> None:
    selection = parse_selection(
        ops="add",
        skip="blocks.3.*",
        phases="backward,optimizer",
        levels="operator",
        io="output",
        steps="2",
        ranks="0",
    )
    wanted = call(1, step=2, phase="backward")
    assert selection.wants_call(wanted)
    for change in (
        {"phase": "forward"},
        {"level": "module"},
        {"op": "aten::mul.Tensor", "name": "x"},
        {"step": 3},
        {"rank": 1},
        {"module": "blocks.3.fc"},
    ):
        columns = {"step": 2, "phase": "backward", **change}
        assert not selection.wants_call(call(1, **columns)), change
    assert selection.wants_io("output")
    assert not selection.wants_io("input")


@pytest.mark.parametrize(
    "options", [{"phases": "sideways"}, {"io": "in"}, {"levels": "operator,atom"}]
)
def test_unknown_words_are_named(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        parse_selection(**options)
