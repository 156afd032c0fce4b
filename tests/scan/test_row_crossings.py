# SPDX-License-Identifier: Apache-2.0
"""NaN that goes from row to row is the operator's that works row by row; whatever may mix rows, or of
which too little is known, is not accused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.questions.rows import Node, Row
from opscope.record.torch.sentinel import places_of
from opscope.scan.row_crossings import row_crossings, rows_at

NOTES = {0: {"unsound_places": {"7 float32": "16-31"}}}  # row 1 of [8, 16]


def row(io: str, slot: str, shape: list[int], nan: int = 0, *, version: int) -> Row:
    size = int(np.prod(shape))
    return Row(
        0,
        0,
        io,
        slot,
        "float32",
        version=version,
        size=size,
        nan=nan,
        pos_inf=0,
        neg_inf=0,
        min=-3.0,
        max=3.0,
        digest=7 if version == 1 else version,
        shape=shape,
        stride=[int(np.prod(shape[place + 1 :])) for place in range(len(shape))],
        offset=0,
    )


def node(op: str, inputs: list[Row], outputs: list[Row], args: str | None = None) -> Node:
    return Node(
        0,
        0,
        0,
        0,
        "operator",
        None,
        "forward",
        op,
        None,
        op,
        None,
        None,
        args,
        None,
        None,
        inputs=inputs,
        outputs=outputs,
    )


def accused(*nodes: Node) -> list[str]:
    return [nodes_op for one in row_crossings(nodes, NOTES) for nodes_op in one.reasons[:1]]


GIVEN = row("input", "0", [8, 16], 16, version=1)
SOUND = row("input", "1", [16, 5], version=9)


def product(nan: int) -> Node:
    return node("aten::mm.default", [GIVEN, SOUND], [row("output", "0", [8, 5], nan, version=2)])


def test_a_product_that_fills_other_rows_is_named() -> None:
    assert accused(product(5)) == []
    assert accused(product(20)) == ["at most 1 of 8 rows that it reads are not finite"]


def test_the_bound_is_carried_through_views_that_split_and_merge() -> None:
    merged = row("output", "0", [2, 4, 5], 5, version=2)
    view = node("aten::view.default", [row("input", "0", [8, 5], 5, version=2)], [merged])
    relu = node(
        "aten::relu.default",
        [row("input", "0", [2, 4, 5], 5, version=2)],
        [row("output", "0", [2, 4, 5], 40, version=3)],
    )
    assert accused(product(5), view, relu) == ["at most 1 of 2 rows that it reads are not finite"]


@pytest.mark.parametrize(
    "op",
    [
        "aten::sum.dim_IntList",
        "aten::native_batch_norm.default",
        "aten::cumsum.default",
        "mine::norm.default",
        "aten::t.default",
    ],
)
def test_what_may_mix_rows_or_is_not_known_is_not_accused(op: str) -> None:
    assert accused(node(op, [GIVEN], [row("output", "0", [8, 16], 128, version=2)])) == []


def test_one_sample_alone_has_tokens_and_features_for_rows() -> None:
    """Attention over tokens and a layer for one sample mix what comes first."""
    attention = "aten::_scaled_dot_product_attention_math.default"
    assert accused(node(attention, [GIVEN], [row("output", "0", [8, 16], 128, version=2)])) == []
    vector, made = row("input", "0", [16], 1, version=1), row("output", "0", [16], 16, version=2)
    assert accused(node("aten::linear.default", [vector], [made])) == []


@pytest.mark.parametrize(("dim", "found"), [(0, 0), (-2, 0), (1, 1), (-1, 1)])
def test_softmax_mixes_what_it_goes_along(dim: int, found: int) -> None:
    call = node(
        "aten::_softmax.default",
        [GIVEN],
        [row("output", "0", [8, 16], 128, version=2)],
        json.dumps({"args": [{"tensor": "0"}, dim, False], "kwargs": {}}),
    )
    assert len(accused(call)) == found


@pytest.mark.parametrize("op", ["aten::t.default", "aten::flip.default", "aten::transpose.int"])
def test_columns_of_a_square_are_other_rows(op: str) -> None:
    """One row of NaN is a column of its transpose, which has the same version and shape."""
    given = row("input", "0", [16, 16], 16, version=1)
    turned = row("output", "0", [16, 16], 16, version=1)
    turned.stride, turned.digest = [1, 16], 8
    read = row("input", "0", [16, 16], 16, version=1)
    read.stride, read.digest = [1, 16], 8
    product = node("aten::mm.default", [read, SOUND], [row("output", "0", [16, 5], 80, version=3)])
    assert accused(node(op, [given], [turned]), product) == []


def test_another_operand_that_is_not_finite_reaches_every_row() -> None:
    weight = row("input", "1", [16, 5], 1, version=9)
    call = node("aten::mm.default", [GIVEN, weight], [row("output", "0", [8, 5], 40, version=2)])
    assert accused(call) == []


def test_values_near_the_end_of_the_type_may_make_nan_of_their_own() -> None:
    large = row("input", "1", [16, 5], version=9)
    large.max = 1e30
    call = node("aten::mm.default", [GIVEN, large], [row("output", "0", [8, 5], 40, version=2)])
    assert accused(call) == []


def test_a_number_that_is_not_finite_and_infinities_of_its_own_reach_every_row() -> None:
    text = json.dumps({"args": [{"tensor": "0"}, {"float": "nan"}], "kwargs": {}})
    spoilt = row("output", "0", [8, 16], 128, version=2)
    assert accused(node("aten::mul.Tensor", [GIVEN], [spoilt], text)) == []
    burst = row("output", "0", [8, 16], 1, version=2)
    burst.pos_inf = 5
    product = node(
        "aten::mm.default",
        [row("input", "0", [8, 16], 1, version=2), row("input", "1", [16, 5], version=9)],
        [row("output", "0", [8, 5], 30, version=3)],
    )
    product.inputs[0].pos_inf = 5
    assert accused(node("aten::mul.Tensor", [GIVEN], [burst]), product) == []


def test_nothing_is_said_where_nobody_looked() -> None:
    assert row_crossings([product(40)], {}) == []
    assert row_crossings([product(40)], {0: {"unsound_places": {"7 float32": "0-127"}}}) == []
    assert row_crossings([product(40)], {0: {"unsound_places": {"7 float32": "9999999"}}}) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 6))
def test_places_tell_the_rows_in_any_shape(wrong: list[bool], width: int) -> None:
    wrong = wrong[: len(wrong) // width * width] or [True] * width
    values = np.where(wrong, np.nan, 1.0)
    told = places_of(values)
    rows = {int(place) // width for place in np.flatnonzero(wrong)}
    found = rows_at(told or "", row("input", "0", [len(wrong) // width, width], version=1))
    spelled = {one for first, last in found or [] for one in range(first, last + 1)}
    assert spelled == rows


def test_elements_that_lie_far_apart_are_not_told() -> None:
    assert places_of(np.array([1.0, np.nan] * 65)) is None
    assert places_of(np.array(np.nan)) is None


def test_a_shape_with_fewer_elements_than_places_has_no_rows() -> None:
    sparse = row("input", "0", [100, 4], version=1)
    sparse.size = 8
    assert rows_at("0-3", sparse) is None


PROGRAM = """
import warnings
import numpy as np, torch
warnings.simplefilter("ignore")
def tiles(a, b):
    out = (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)
    if {wrong}:
        for start in range(0, len(out), 4):
            out[start:start + 4] += 0 * out[start:start + 4].sum(0)
    return out
library = torch.library.Library("aten", "IMPL")
library.impl("mm", tiles, "CPU")
weight = torch.ones(16, 5)
batch = np.ones((2, 8, 16), np.float32)
batch[1, 3] = np.nan
(torch.from_numpy(batch).view(-1, 16) @ weight).relu().argmax(1)
"""


@pytest.mark.parametrize("wrong", [True, False])
def test_a_kernel_whose_tiles_share_a_sum_is_named_with_the_row(
    wrong: bool, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(wrong=wrong), encoding="utf-8")
    words = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run")]
    subprocess.run(
        [*words, "--json-file", str(tmp_path / "run.json"), "--", sys.executable, str(program)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        timeout=240,
    )
    found = json.loads((tmp_path / "run.json").read_text())["findings"]
    crossings = [each for each in found if each["kind"] == "row-crossing"]
    assert [each["op"] for each in crossings] == (["aten::mm.default"] if wrong else [])
    if wrong:
        assert crossings[0]["evidence"][0]["unsound_before"] == 1
        assert crossings[0]["evidence"][0]["unsound_after"] == 4
