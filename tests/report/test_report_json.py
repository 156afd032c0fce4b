# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from opscope.report.json import json_pieces, json_text
from opscope.run.finding import Document, Finding, Slot
from opscope.run.schema import ValueRef

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_any_value_is_strict_json(value: object) -> None:
    def refuse(literal: str) -> None:
        raise AssertionError(literal)

    text = json_text(value)
    json.loads(text, parse_constant=refuse)
    assert text.isascii()
    assert "\n" not in text


def test_numbers_that_are_not_finite_are_strings() -> None:
    slot = Slot(
        slot="0",
        dtype="float32",
        shape=(2,),
        stats={"min": math.nan, "max": math.inf, "mean": -math.inf, "l2norm": 1.5},
    )
    document = Document(
        opscope="1", verb="scan", findings=(Finding(kind="overflow-origin", outputs=(slot,)),)
    )
    stats = json.loads(json_text(document))["findings"][0]["outputs"][0]["stats"]
    assert stats == {"min": "nan", "max": "inf", "mean": "-inf", "l2norm": 1.5}


def test_what_json_has_not_is_text() -> None:
    row = {
        "when": date(2026, 1, 2),
        "bytes": b"\x01\xff",
        "big": 2**64 - 1,
        "value": ValueRef("s", "k"),
        "none": None,
        "lone": "\udc80",
    }
    assert json.loads(json_text(row)) == {
        "when": "2026-01-02",
        "bytes": "01ff",
        "big": 2**64 - 1,
        "value": {"shard": "s", "key": "k"},
        "none": None,
        "lone": "\udc80",
    }


def test_long_lists_come_in_pieces_of_one_document() -> None:
    pieces = list(
        json_pieces({"verb": "show"}, [("calls", ({"n": n} for n in range(3))), ("tensors", [])])
    )
    assert len(pieces) > 4
    assert json.loads("".join(pieces)) == {
        "verb": "show",
        "calls": [{"n": 0}, {"n": 1}, {"n": 2}],
        "tensors": [],
    }
    assert json.loads("".join(json_pieces({}, [("rows", [1])]))) == {"rows": [1]}
