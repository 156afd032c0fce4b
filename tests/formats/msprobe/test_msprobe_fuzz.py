# SPDX-License-Identifier: Apache-2.0
"""dump.json of any content: its calls and rows always fit the tables, or one FormatError says why
not.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import FormatError
from opscope.formats.msprobe import FORMAT
from opscope.formats.msprobe.leaves import argument, tensors
from opscope.formats.msprobe.reader import entries_of, read_construct
from opscope.formats.msprobe.stacks import read_stacks
from opscope.run.arrow import encode_rows

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from(
    [
        "type",
        "dtype",
        "shape",
        "Max",
        "Min",
        "Mean",
        "Norm",
        "requires_grad",
        "data_name",
        "md5",
        "value",
        "input_args",
        "input_kwargs",
        "output",
        "input",
        "parameters",
        "is_recompute",
        "is_nan",
        "layout",
        "placements",
    ]
) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS
    | st.sampled_from(
        [
            "torch.Tensor",
            "torch.float32",
            "torch.bool",
            "int",
            "slice",
            "torch.dtype",
            "Infinity",
            "../x",
        ]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
NAMES = st.sampled_from(
    [
        "Torch.a.0.forward",
        "Torch.a.0.backward",
        "Module.x.y.Linear.forward.0",
        "Module.x.y.Linear.parameters_grad.0",
        "x.0.debug",
        "",
        "..",
        "Module.Linear.backward.1",
        "optimizer",
        "Distributed.all_reduce.0.forward",
    ]
) | st.text(max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    VALUES,
    st.dictionaries(NAMES, NAMES | VALUES, max_size=6),
)
def test_any_dump(data: dict[str, Any], stack: Any, construct: Any) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "dump.json").write_text(json.dumps({"task": "x", "data": data}))
        (folder / "stack.json").write_text(json.dumps(stack))
        (folder / "construct.json").write_text(json.dumps(construct))
        run = FORMAT.open(folder)
        for table in ("calls", "tensors", "stacks"):
            encode_rows(table, run.rows(table))  # type: ignore[attr-defined]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=100) | st.binary(max_size=100).map(lambda data: data.decode("latin-1")))
def test_any_text(text: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "dump.json").write_bytes(
            b'{"task": 1, "data": ' + text.encode("latin-1", "replace")
        )
        try:
            FORMAT.open(Path(place))
        except FormatError as error:
            assert "\n" not in str(error)  # noqa: PT017


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_any_value(value: Any) -> None:
    list(tensors(value, "0"))
    json.dumps(argument(value, "0"), allow_nan=False)
    read_stacks(value)
    read_construct(value)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(NAMES, st.none() | NAMES), max_size=12))
def test_any_nesting_gives_each_entry_once(pairs: list[tuple[str, str | None]]) -> None:
    data = {name: {} for name, _ in pairs}
    entries = entries_of(data, dict(pairs))
    assert sorted(entry.name for entry in entries) == sorted(data)
