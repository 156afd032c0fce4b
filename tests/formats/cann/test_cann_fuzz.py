# SPDX-License-Identifier: Apache-2.0
"""Whole paths under mutation: opening as a run, reading every value, converting to every kind.
Nothing but the named errors.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cann_dumps import classic_record, dump, modern_record, operator, raw
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import OpscopeError
from opscope.formats import layouts
from opscope.formats.cann.convert import Request, convert_file
from opscope.formats.cann.detection import FORMAT
from opscope.formats.cann.message import Attribute, OriginalOp, Shape
from opscope.formats.cann.output import KINDS, Output

FEATURE = np.arange(1, 2 * 5 * 2 * 2 + 1, dtype=np.float16).reshape(2, 5, 2, 2)
RANGES = [[[{"lower": 0, "higher": 2}, {"lower": 0, "higher": 3}]]] * 2
TOLD = {
    "threadMode": 1,
    "slice_instance_num": 2,
    "outputCutList": [[2, 1]],
    "input_tensor_slice": RANGES,
    "output_tensor_slice": RANGES,
}
NAMES = (
    "Conv2D.conv.1.2.3",
    "Conv2D.sgt_graph_0_conv.1.2.3.4.5.1.0",
    "Opdebug.Node_OpDebug.1.2.3",
    "exception_info.1.2.3",
)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Small files that between them have every message, layout and kind of record."""
    directory = tmp_path_factory.mktemp("seeds")
    pieces = [
        dump(
            layouts.from_host(FEATURE, "NCHW", "NC1HWC0", c0=4), "NC1HWC0", FEATURE.shape, address=5
        ),
        dump(
            layouts.from_host(FEATURE[:, :, 0, 0], "ND", "FRACTAL_NZ", c0=2),
            "FRACTAL_NZ",
            (2, 5),
            address=6,
        ),
        dump(np.ones((1, 1, 16, 4), np.float32), "FRACTAL_Z", (1, 1, 2, 4), groups=2),
    ]
    outputs = [
        raw(b"\x12\x34", (4,), 28, original_op=OriginalOp(name="a", format=1)),
        raw(bytes(6), (2, 3), 33),
    ]
    attr = (Attribute(name="x", value=json.dumps(TOLD)),)
    made = [
        operator(
            directory / "a",
            pieces,
            outputs,
            attr=attr,
            dfx_message="the address maybe invalid",
            op_name="a/b",
        ),
        operator(directory / "b", pieces, outputs, form="inline"),
        operator(directory / "c", outputs=[raw(classic_record(), (2048,), 4)]),
        operator(directory / "d", outputs=[raw(modern_record(0, status=32, size=112), (112,), 4)]),
    ]
    return [path.read_bytes() for path in made]


@given(
    which=st.integers(0, 3),
    name=st.sampled_from(NAMES),
    edits=st.lists(
        st.tuples(
            st.integers(0, 600),
            st.one_of(
                st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 4, 28, 29, 33, 127, 128, 255])
            ),
        ),
        max_size=6,
    ),
    layout=st.sampled_from([None, "NCHW", "ND", "NHWC", "FRACTAL_Z", "NC1HWC0", "NCDHW"]),
    kind=st.sampled_from(KINDS),
    exact=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_nothing_but_the_named_errors(  # noqa: PLR0917
    seeds: list[bytes],
    tmp_path_factory: pytest.TempPathFactory,
    which: int,
    name: str,
    edits: list[tuple[int, int]],
    layout: str | None,
    kind: str,
    exact: bool,
) -> None:
    content = bytearray(seeds[which])
    for at, byte in edits:
        content[at % min(len(content), 600)] = byte
    directory = tmp_path_factory.mktemp("fuzz")
    path = directory / name
    path.write_bytes(bytes(content))
    out = directory / "out"
    out.mkdir()
    failure = convert_file(path, Request(kind=kind, layout=layout, exact=exact), Output(out))
    if failure is not None:
        assert failure.code != 0
        assert failure.reasons
        assert all("\n" not in reason for reason in failure.reasons)
    assert all(written.stat().st_size < 1 << 20 for written in out.iterdir())
    for place in (directory, path):
        visit(place)


def visit(place: Path) -> None:
    """Open a path as a run and read everything in it."""
    try:
        run = FORMAT.open(place)
    except OpscopeError:
        return
    for row in run.rows("tensors"):
        if row.value is not None:
            values = run.value(row)
            assert values.size == row.size
    assert all("\n" not in problem for problem in run.problems)


@pytest.mark.parametrize(
    "dims",
    [
        (1 << 62, 0),
        (0, 1 << 62, 4),
        (1 << 40, 1 << 40),
        (1,) * 32,
        (1,) * 33,
        (0,),
        (1 << 63,),
        (3, 0, 5),
    ],
)
@pytest.mark.parametrize(
    "layout", ["ND", "NCHW", "NC1HWC0", "FRACTAL_NZ", "FRACTAL_Z", "C1HWNCoC0"]
)
def test_absurd_shapes(dims: tuple[int, ...], layout: str, tmp_path: Path) -> None:
    from opscope.formats.cann.dtypes import FORMAT_NUMBERS

    entry, data = raw(bytes(4), dims, 1, layout=FORMAT_NUMBERS[layout])
    path = operator(tmp_path / "Op.op.1.2.3", outputs=[(entry, data)])
    out = tmp_path / "out"
    out.mkdir()
    for target in (None, "NCHW", "ND"):
        convert_file(path, Request(layout=target), Output(out))
    visit(path)
    assert sum(written.stat().st_size for written in out.iterdir()) < 10_000
    assert Shape(dim=dims) == entry.shape
