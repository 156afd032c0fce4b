# SPDX-License-Identifier: Apache-2.0
"""The directory of a zip, read without zipfile, is what zipfile reads; whatever is damaged is one
ValueError.
"""

from __future__ import annotations

import io
import zipfile
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opscope.formats.zip_members import content_of, members_of


def _zip(
    contents: dict[str, bytes], comment: bytes = b"", method: int = zipfile.ZIP_STORED
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.comment = comment
        for name, content in contents.items():
            archive.writestr(name, content)
    return out.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    contents=st.dictionaries(
        st.text("abé/.", min_size=1, max_size=12), st.binary(max_size=60), max_size=6
    ),
    comment=st.binary(max_size=40),
)
@example(contents={"a": b"1"}, comment=b"PK\x05\x06")
@example(contents={"a": b"1"}, comment=b"PK\x05\x06" * 8)
def test_members_are_those_of_zipfile(contents: dict[str, bytes], comment: bytes) -> None:
    data = _zip(contents, comment)
    found = members_of(data)
    assert list(found) == list(contents)
    for name, member in found.items():
        begin = content_of(data, member)
        assert data[begin : begin + member.size] == contents[name]
        assert member.plain


def test_fields_of_64_bits() -> None:
    contents = {"a": b"12345", "b": b"67"}
    with (
        mock.patch.object(zipfile, "ZIP64_LIMIT", 1),
        mock.patch.object(zipfile, "ZIP_FILECOUNT_LIMIT", 1),
    ):
        data = _zip(contents)
    assert b"PK\x06\x06" in data
    found = members_of(data)
    assert {
        name: data[content_of(data, one) :][: one.size] for name, one in found.items()
    } == contents


def test_what_is_packed_is_not_plain() -> None:
    (member,) = members_of(_zip({"a": b"0" * 500}, method=zipfile.ZIP_DEFLATED)).values()
    assert (member.size, member.plain) == (500, False)


@pytest.mark.parametrize("end", range(0, 220, 3))
def test_a_cut_zip_is_refused(end: int) -> None:
    data = _zip({"a": b"x" * 40, "b": b"y"})
    with pytest.raises(ValueError, match="its "):
        members_of(data[: min(end, len(data) - 1)])


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6),
    wide=st.booleans(),
)
def test_a_damaged_zip_is_read_within_its_bytes(changes: list[tuple[int, int]], wide: bool) -> None:
    with mock.patch.object(zipfile, "ZIP64_LIMIT", 1 if wide else zipfile.ZIP64_LIMIT):
        data = bytearray(_zip({"a": b"x" * 40, "b": b"y"}))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        found = members_of(bytes(data))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    for member in found.values():
        try:
            begin = content_of(bytes(data), member)
        except ValueError:
            continue
        assert 0 <= begin <= begin + member.size <= len(data)
