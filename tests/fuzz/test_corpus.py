# SPDX-License-Identifier: Apache-2.0
"""Replays the corpus of the fuzzer, and every input of it cut short and with bytes changed."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from targets import CORPUS, TARGETS, attempt

import opscope.ascend
import opscope.formats

INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())
BY_NAME = {
    name: [path.read_bytes() for path in INPUTS if path.parent.name == name] for name in TARGETS
}
PARSES = re.compile(r"(?:read|parse|load|decode|open)(?:_|$)|\w+_in$")
NOT_HERE = {
    "opscope.formats.registry.open_run": "finds out whose a path is: describe and detect are reached",
}


def test_every_parser_has_a_corpus() -> None:
    assert [name for name, inputs in BY_NAME.items() if not inputs] == []
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


def modules() -> Iterator[ModuleType]:
    for room in (opscope.formats, opscope.ascend):
        for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if ".scripts" not in each.name:  # they are written into cases
                yield importlib.import_module(each.name)


def parsers() -> dict[CodeType, str]:
    """Every function of formats/ and ascend/ that is called as parsers are, by its code."""
    return {
        value.__code__: f"{module.__name__}.{name}"
        for module in modules()
        for name, value in inspect.getmembers(module, inspect.isfunction)
        if value.__module__ == module.__name__ and PARSES.match(name)
    }


def test_every_parser_is_reached() -> None:
    called: set[CodeType] = set()

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        for path in INPUTS:
            attempt(path.parent.name, path.read_bytes())
    finally:
        sys.setprofile(before)
    missed = sorted(name for code, name in parsers().items() if code not in called)
    assert missed == sorted(NOT_HERE)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kept_inputs(path: Path) -> None:
    attempt(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_sound_input_is_read(name: str) -> None:
    """The seed is no input that the parser refuses at its first byte: fuzzing from it reaches the
    rest.
    """
    TARGETS[name]((CORPUS / name / "seed").read_bytes())


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_changed_inputs(name: str, data: st.DataObject) -> None:
    changed = bytearray(data.draw(st.sampled_from(BY_NAME[name])))
    del changed[data.draw(st.integers(0, len(changed))) :]
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=5)
    ):
        if changed:
            changed[at % len(changed)] = value
    attempt(name, bytes(changed))
