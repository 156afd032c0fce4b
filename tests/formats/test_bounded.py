# SPDX-License-Identifier: Apache-2.0
"""Files are read whole within a bound, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded, read_bounded_text


def test_a_file_within_the_bound_is_read_and_a_larger_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\0" * (1 << 20))
    assert read_bounded(path, limit=1 << 20, what="a test") == b"\0" * (1 << 20)
    path.write_bytes(b"\0" * ((1 << 20) + 1))
    with pytest.raises(FormatError, match=r"x\.bin.*a test of more than 1 MiB is not read"):
        read_bounded(path, limit=1 << 20, what="a test")


@pytest.mark.parametrize("name", ["absent", "."])
def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(FormatError, match="cannot be read") as caught:
        read_bounded(tmp_path / name, limit=1 << 40, what="a test")
    assert "\n" not in str(caught.value)


def test_lines_end_alike_and_broken_text_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\xff")
    assert (
        read_bounded_text(path, limit=100, what="a test", encoding="utf-8-sig")
        == "one\ntwo\nthree\n\N{REPLACEMENT CHARACTER}"
    )
