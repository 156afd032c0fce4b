# SPDX-License-Identifier: Apache-2.0
"""Pictures of a finding and of a call: whole XML, what a run calls things as text alone; as PNG the
right size, with letters, or a word on what is missing.
"""

from __future__ import annotations

import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from view_runs import HOSTILE, overflowing

from opscope.errors import UnavailableError
from opscope.run.memory import MemoryRun
from opscope.scan.api import scan
from opscope.view.documents import Documents
from opscope.view.figure import (
    SCALE,
    call_figure,
    picture_file,
    place_in_path,
    png,
    verdict_figure,
)
from opscope.view.written import written

PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40">'
    '<rect width="80" height="40" fill="#ffffff"/>{}</svg>'
)
DRAWN = {"svg", "style", "rect", "path", "polyline", "text"}


def documents(run: MemoryRun, **more: Any) -> Documents:
    return Documents(run, scan(run), **more)


def drawn(svg: str) -> tuple[set[str], list[str]]:
    """Elements of a picture and the lines of its text."""
    elements = list(ElementTree.fromstring(svg).iter())
    kinds = {element.tag.rpartition("}")[2] for element in elements}
    return kinds, [element.text or "" for element in elements if element.tag.endswith("}text")]


def figure(found: Documents) -> str:
    return verdict_figure(*map(found.get, ("verdict", "calls", "names")))


def test_a_finding_says_where_and_has_its_path() -> None:
    kinds, lines = drawn(figure(documents(overflowing())))
    assert kinds <= DRAWN
    assert lines[0] == "overflow  step 2  aten::mm.default"
    assert "/u/train.py:3" in lines
    assert "◆ blocks.0:mm#1" in lines
    assert any(line.startswith("● blocks.0:_softmax#1") for line in lines)


def test_a_clean_run_has_one_line() -> None:
    run = overflowing(steps=3)
    healthy = MemoryRun(run.info, run.processes, run.rows("calls")[:6], run.rows("tensors")[:14])
    assert drawn(figure(documents(healthy)))[1] == ["nothing wrong was found"]


@pytest.mark.parametrize("name", [HOSTILE, "a\x1b[2J\x00b", "]]>&amp;<!--"])
def test_names_of_a_run_are_text(name: str) -> None:
    found = documents(overflowing(name=name))
    kinds, lines = drawn(figure(found))
    assert kinds <= DRAWN
    assert any("blocks.0:" in line for line in lines)
    assert drawn(call_figure(found.get("calls", "0.6")))[0] <= DRAWN


def test_a_call_has_a_line_for_each_tensor_over_the_steps() -> None:
    svg = call_figure(documents(overflowing(steps=4)).get("calls", "0.9"))
    _, lines = drawn(svg)
    assert svg.count("<polyline") == 3
    assert "output 0" in lines
    assert "◆  not finite" in lines
    assert {"0", "3", "1e5"} <= set(lines)


@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_a_statistic_that_is_not_finite_breaks_nothing(wrong: float) -> None:
    call = documents(overflowing(steps=4)).get("calls", "0.9")
    for tensor in call["tensors"]:
        tensor["series"] = [[0, 0.0, 1.0, 0], [1, None, None, 0], [2, 0.0, wrong, None]]
    assert "◆  not finite" in drawn(call_figure(call))[1]


def test_what_is_redacted_is_not_drawn() -> None:
    found = documents(overflowing(), redact=frozenset({"paths", "values"}))
    text = figure(found) + call_figure(found.get("calls", "0.6"))
    assert "/u/" not in text
    assert "65504" not in text


def test_calls_beside_the_path_are_what_their_results_are() -> None:
    finding = {"id": "a", "hider": "h", "path": ["a", "b", "c"], "evidence": [{"reached": "loss"}]}
    stats = [{}, {"size": 1}, {"size": 1, "neg_inf": 2}, {"size": 1, "nan": 1}]
    calls = [{"tensors": [{"io": "output", "stats": one}]} for one in stats]
    assert [place_in_path("x", call, finding) for call in calls] == [
        "unread",
        "sound",
        "mask",
        "unsound",
    ]
    assert [place_in_path(key, None, finding) for key in "ahbc"] == [
        "origin",
        "hidden",
        "unsound",
        "reached",
    ]


def test_an_issue_says_what_where_and_what_to_type() -> None:
    found = documents(overflowing())
    text = written(found.get("verdict"), found.get("run"))
    assert text.startswith("## overflow: `aten::mm.default`, step 2\n")
    assert "`/u/train.py:3`" in text
    assert "out 0   f16[4, 4]" in text
    assert "`blocks.0:mm#1` → `blocks.0:_softmax#1`" in text
    assert "opscope repro /u/runs/x" in text


def test_names_of_a_run_are_no_markup_in_an_issue() -> None:
    found = documents(overflowing(name="`x`\n# <img src=x>\n```\n"))
    text = written(found.get("verdict"), found.get("run"))
    outside, inside = [], ""
    for line in text.splitlines():
        if not inside and line.startswith("```"):
            inside = line[: len(line) - len(line.lstrip("`"))]
        elif inside and line == inside:
            inside = ""
        elif not inside:
            outside.append(line)
    assert inside == ""
    assert [line for line in outside if line.startswith(("# ", "<img"))] == []


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
