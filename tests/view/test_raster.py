# SPDX-License-Identifier: Apache-2.0
"""Pictures as PNG: the right size, with letters, or a word on what is missing."""

from __future__ import annotations

import struct
import sys
from functools import partial
from pathlib import Path

import pytest

from opscope.errors import UnavailableError
from opscope.view.raster import SCALE, picture_file, png

PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40">'
    '<rect width="80" height="40" fill="#ffffff"/>{}</svg>'
)


def test_a_file_is_what_its_name_says() -> None:
    svg = PICTURE.format("")
    drawn = picture_file(svg, Path("x.PNG"))
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (80 * SCALE, 40 * SCALE)
    assert picture_file(svg, Path("x.svg")) == svg.encode()


def test_letters_that_no_font_has_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    resvg = pytest.importorskip("resvg_py")
    without_fonts = partial(resvg.svg_to_bytes, skip_system_fonts=True)
    monkeypatch.setattr(resvg, "svg_to_bytes", without_fonts)
    with pytest.raises(UnavailableError, match="font"):
        png(PICTURE.format('<text x="5" y="20">a</text>'))


def test_without_resvg_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UnavailableError, match=r"opscope\[plot\]"):
        png(PICTURE.format(""))
