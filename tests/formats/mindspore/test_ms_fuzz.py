# SPDX-License-Identifier: Apache-2.0
"""Every parser of the format on made-up and mangled input: an answer or one FormatError, never
anything else.
"""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from ms_dumps import IR, real

from opscope.errors import FormatError
from opscope.formats.mindspore.attributes import ValueText, split_top
from opscope.formats.mindspore.edges import Versions, wire
from opscope.formats.mindspore.ir import parse_ir, parse_type
from opscope.formats.mindspore.join import Facts, join
from opscope.formats.mindspore.metadata import read_arguments
from opscope.formats.mindspore.names import (
    parse_arguments_name,
    parse_overflow_name,
    parse_raw_name,
    parse_tensor_name,
)
from opscope.formats.mindspore.pb import parse_pb
from opscope.formats.mindspore.raw import overflow_units
from opscope.formats.mindspore.statistic import parse_statistic
from opscope.run.arrow import encode_rows
from opscope.run.schema import Tensor

PIECES = st.sampled_from([
    "%0(a) = ", "Load(", "PrimFunc_Mul(%0, ", "%para1_w", "MakeTuple(%1)",
    "TupleGetItem(%1, I64(9999999999999999999))", "(", ")", "{", "}",
    " primitive_attrs: {", " cnode_attrs: {", "a: ", "I64(", "Bool(x)", '"', "<", ">", ", ",
    " -> ", ":", "# Fullname with scope: (", "\n",
    "      : (", "<Tensor[Float32], (3, -1)>", "<Tuple[Tensor[Float32]*99999999], TupleShape(())>",
    "ref_key=", "# In file /x.py:1~2, 3~4/ def f():/",
    "# In file x(9)/ y/", "subgraph @g() {", "\x00", "é", "9" * 40,
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_ir_text(text: str) -> None:
    graph = parse_ir(text)
    wire(graph, graph.kernels, Versions())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(IR)), st.integers(0, 30), PIECES), max_size=6))
def test_mangled_ir(edits: list[tuple[int, int, str]]) -> None:
    text = IR
    for at, length, piece in edits:
        text = text[:at] + piece + text[at + length :]
    graph = parse_ir(text)
    wire(graph, graph.kernels, Versions())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_mangled_pb(data: st.DataObject) -> None:
    original = (real("ms_conv") / "rank_0/graphs/ms_output_trace_code_graph_0.pb").read_bytes()
    changed = bytearray(original[: data.draw(st.integers(0, len(original)))])
    for _ in range(data.draw(st.integers(0, 8))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        graph = parse_pb(bytes(changed))
    except FormatError as error:
        assert error.offset is not None or "no graph" in error.reason  # noqa: PT017
        return
    wire(graph, graph.kernels, Versions())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_pb_noise(data: bytes) -> None:
    try:
        parse_pb(b"\x22" + bytes([len(data) % 128]) + data)
    except FormatError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='()[]{}<>,:"= \\aI6F4Bool.-9%', max_size=60))
def test_values_and_types(text: str) -> None:
    ValueText(text).value()
    ValueText("{" + text).mapping()
    parse_type(text)
    split_top(text)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "Mul",
                "Default_x",
                ".",
                "0",
                "65535",
                "9" * 30,
                "input",
                "output",
                "npy",
                "json",
                "Opdebug.Node_OpDebug",
                "/",
                "\n",
            ]
        ),
        max_size=14,
    ).map("".join)
)
def test_names(name: str) -> None:
    parsed = parse_tensor_name(name)
    if parsed is not None:
        assert parsed.task < 1 << 63
        assert parsed.time < 1 << 63
    parse_raw_name(name)
    parse_overflow_name(name)
    parse_arguments_name(name)


CELLS = st.one_of(
    st.text(alphabet='0123456789.-+einfax(), "', max_size=12),
    st.sampled_from(
        [
            "nan",
            "inf",
            "-inf",
            "1e400",
            "9" * 25,
            "(2,3)",
            "(99999999999,99999999999)",
            "input",
            "output",
            "float32",
            "int64",
            "",
        ]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=14, max_size=14), max_size=5))
def test_statistic_csv(lines: list[list[str]]) -> None:
    """Whatever stands in the cells, the columns fit the table."""
    header = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Type,Shape,Max Value,Min "
        "Value,Avg Value,NaN Count,Count\n"
    )
    text = header + "\n".join(
        ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) for cells in lines
    )
    rows = [
        Tensor(
            process=0,
            index=0,
            io=row.io,
            slot="0",
            dtype=row.dtype or "unknown",
            shape=row.shape,
            **row.statistics,
        )
        for row in parse_statistic(text, "s.csv", [])
    ]
    encode_rows("tensors", rows)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_json_files(value: object) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as place:
        path = Path(place) / "a.json"
        path.write_text(json.dumps(value))
        for read in (read_arguments, overflow_units):
            try:
                read(path)
            except FormatError:
                pass


class _NoFiles:
    def sizes(self, kernel: tuple[str, str]) -> dict[tuple[str, int], int]:
        return {}

    def content(self, kernel: tuple[str, str], io: str, number: int) -> bytes | None:
        return None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(0, 50)),
        unique_by=lambda item: item[0],
        max_size=10,
    )
)
def test_join_gives_each_kernel_a_node_of_its_own(kernels: list[tuple[int, int, int]]) -> None:
    """Casts in one scope, read in a chain, with any times: never two kernels on one node, never an
    error.
    """
    text = "".join(
        f"  %{k}(c) = Cast(%{k - 1})\n      : (<Tensor[Float32], (3)>) -> (<Tensor[Float32], "
        f"(3)>)\n      # Fullname with scope: (Default/Cast-op{k + 3})\n"
        for k in range(1, 8)
    )
    facts = [
        Facts(("Cast", f"Default_Cast-op{number}"), {}, {0: (min(a, b), max(a, b))})
        for number, a, b in kernels
    ]
    found = join(facts, parse_ir(text), _NoFiles())
    nodes = [node.key for node in found.values()]
    assert len(set(nodes)) == len(nodes)
    assert set(found) <= {fact.kernel for fact in facts}
