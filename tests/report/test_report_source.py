# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from opscope.report.console import printable
from opscope.report.source import MAX_FILE, names_place, parse_place, short_place, text_of
from opscope.report.values import elements, excerpt


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("/a/train.py:41", ("/a/train.py", 41)),
        ("/a b/在 in x.py:7 in <module>", ("/a b/在 in x.py", 7)),
        ("C:/x.py:3", ("C:/x.py", 3)),
        ("train.py", None),
        ("train.py:", None),
        (":3", None),
        ("a.py:9999999999999", None),
        ("a.py:٣", None),
    ],
)
def test_places(source: str, place: tuple[str, int] | None) -> None:
    assert parse_place(source) == place


@pytest.mark.parametrize(
    ("source", "wanted", "meant"),
    [
        ("/p/models/gpt.py:41", ("gpt.py", 41), True),
        ("/p/models/gpt.py:41 in forward", ("models/gpt.py", 41), True),
        ("/p/models/gpt.py:41", ("/p/models/gpt.py", 41), True),
        ("/p/models/gpt.py:41", ("pt.py", 41), False),
        ("/p/models/gpt.py:41", ("gpt.py", 4), False),
        ("nonsense", ("gpt.py", 41), False),
    ],
)
def test_a_file_is_named_by_its_last_parts(
    source: str, wanted: tuple[str, int], meant: bool
) -> None:
    assert names_place(source, wanted) == meant


def test_places_are_shown_short(tmp_path: Path) -> None:
    assert short_place(f"{tmp_path}/a/b.py:3", here=tmp_path) == "a/b.py:3"
    assert short_place("/usr/lib/x/models/gpt.py:3", here=tmp_path) == "…/models/gpt.py:3"
    assert short_place("/gpt.py:3", here=tmp_path) == "/gpt.py:3"


def test_only_what_is_a_line_of_python_is_read(tmp_path: Path) -> None:
    file = tmp_path / "训练 a.py"
    file.write_bytes("first\n    第二 = 2\n\xff\n".encode() + b"\xff\n")
    assert text_of(f"{file}:2 in f") == "第二 = 2"
    assert text_of(f"{file}:4") == "\ufffd"
    assert [text_of(f"{file}:{line}") for line in (0, 5, 99)] == [None, None, None]
    (tmp_path / "big.py").write_bytes(b"x" * (MAX_FILE + 1))
    os.mkfifo(tmp_path / "pipe.py")
    for name in ("big.py", "pipe.py", "gone.py", "text.txt", "."):
        assert text_of(f"{tmp_path / name}:1") is None
    assert text_of(f"{tmp_path}/a\x00.py:1") is None


def test_control_and_formatting_characters_are_shown() -> None:
    assert printable("注意 ∈ é") == "注意 ∈ é"
    assert printable("a\x1b[2J\n\u202e\x9b\ud800") == "a\\x1b[2J\\n\\u202e\\x9b\\ud800"


def test_an_excerpt_says_where_what_is_not_finite_begins() -> None:
    array = np.zeros((3, 500), dtype=np.float16)
    array[1, 7], array[2, 0], array[2, 499] = np.nan, np.inf, -np.inf
    array[0, 3:8] = np.nan
    lines = excerpt(array)
    assert lines[-3:] == [
        "nan at [0, 3], [0, 4], [0, 5] and 3 more",
        "inf at [2, 0]",
        "-inf at [2, 499]",
    ]
    assert max(map(len, lines)) <= 76


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "bool", "complex64", "uint8"]
)
def test_an_excerpt_of_every_kind(name: str) -> None:
    import ml_dtypes

    array = np.ones((2, 2), dtype=getattr(ml_dtypes, name, name))
    assert excerpt(array)
    assert elements(array) == {
        "size": 4,
        "elements": [[1.0, 0.0] if name == "complex64" else 1] * 4,
    }


def test_an_excerpt_is_short() -> None:
    assert len(excerpt(np.zeros((9, 9, 9, 9, 9)))) < 20
    assert excerpt(np.float32(3.5).reshape(())) == ["3.5"]
    assert excerpt(np.zeros((0, 3))) == ["[]"]
    assert elements(np.arange(5000))["size"] == 5000
    assert len(elements(np.arange(5000))["elements"]) == 1000
