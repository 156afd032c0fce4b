# SPDX-License-Identifier: Apache-2.0
"""AI Core errors on the page: the map of memory keeps order and overlap."""

from __future__ import annotations

import msgspec
import pytest

from opscope.ascend.addresses import BAD
from opscope.ascend.evidence import AddressesPart, ToldCheck, ToldOwner
from opscope.run.finding import Document, Finding
from opscope.view.aicore import Span, address_map, aicore_document, aicore_page, spans_of

ADDRESSES = AddressesPart(
    checks=(
        ToldCheck(
            tensor="input 0",
            address="0x1000",
            size=64,
            status="beyond",
            text="ends beyond its allocation",
            allocation=(0x1000, 32),
        ),
        ToldCheck(tensor="input 1", address=None, size=64, status="unknown", text=""),
    ),
    owners=(ToldOwner(source="register", address="0x1030", text="in input 0"),),
)


def test_spans_are_arguments_allocations_and_faults() -> None:
    found = list(spans_of(ADDRESSES))
    assert [(span.kind, span.start, span.end) for span in found] == [
        ("allocation", 0x1000, 0x1020),
        ("argument", 0x1000, 0x1040),
        ("fault", 0x1030, 0x1031),
    ]
    assert list(spans_of(AddressesPart())) == []


def test_an_address_of_which_nothing_is_known_is_not_accused() -> None:
    check = msgspec.structs.replace(ADDRESSES.checks[0], allocation=None)
    told = [
        next(spans_of(AddressesPart(checks=(msgspec.structs.replace(check, status=status),)))).bad
        for status in ("unknown", "ok", *sorted(BAD))
    ]
    assert told == [False, False, *[True] * len(BAD)]


def test_the_map_keeps_order_and_overlap_of_addresses_far_apart() -> None:
    spans = [
        Span("argument", "a", 0, 16),
        Span("argument", "b", 8, 64),
        Span("fault", "f", 1 << 60, (1 << 60) + 1),
    ]
    first, second, third = address_map(spans)
    assert first["left"] == 0
    assert first["left"] < second["left"] < first["left"] + first["width"]
    assert second["left"] + second["width"] < third["left"]
    assert third["left"] + third["width"] == pytest.approx(1)
    assert third["width"] > 0
    assert address_map([]) == []


def test_a_page_of_errors_and_one_without() -> None:
    finding = Finding(
        kind="aicore-error", op="MatMul", reasons=("<script>x",), evidence=(ADDRESSES,)
    )
    document = Document(opscope="0", verb="aicore", findings=(finding,))
    (error,) = aicore_document(document)["errors"]
    assert error["op"] == "MatMul"
    assert [span["kind"] for span in error["map"]] == ["allocation", "argument", "fault"]
    assert "<script>x" not in aicore_page(document)
    assert "no AI Core error" in aicore_page(Document(opscope="0", verb="aicore"))
