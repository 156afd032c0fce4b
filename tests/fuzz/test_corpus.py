# SPDX-License-Identifier: Apache-2.0
"""Replays the corpus of the fuzzer, and every input of it cut short and with bytes changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from targets import CORPUS, TARGETS, attempt

INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())
BY_NAME = {
    name: [path.read_bytes() for path in INPUTS if path.parent.name == name] for name in TARGETS
}


def test_every_parser_has_a_corpus() -> None:
    assert [name for name, inputs in BY_NAME.items() if not inputs] == []
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


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
