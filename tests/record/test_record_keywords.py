# SPDX-License-Identifier: Apache-2.0
"""The keywords of opscope.record: those of the command line, said, completed and checked."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.record.config import OPTIONS


def test_they_are_the_options_of_the_command_line() -> None:
    keywords = list(inspect.signature(opscope.record).parameters)
    assert keywords == ["path", *(each.field for each in OPTIONS if each.word != "output")]


def test_its_documentation_says_each() -> None:
    text = inspect.getdoc(opscope.record) or ""
    for option in OPTIONS:
        assert option.word == "output" or f"\n{option.field}: {option.help}" in text


def test_a_keyword_that_is_none_is_a_type_error_that_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"keyword argument 'setps'\. Did you mean 'steps'\?"):
        opscope.record("x", setps="0")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"scan\(\) .* 'show_hiden'\. Did you mean 'show_hidden'"):
        opscope.scan("x", show_hiden=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'zzz'$"):
        opscope.record("x", zzz=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", [{"check": "yes"}, {"values": True}, {"steps": []}])
def test_a_value_that_an_option_cannot_have_is_said(wrong: dict[str, object]) -> None:
    with pytest.raises(opscope.UsageError, match=f"record: {next(iter(wrong))} is"):
        opscope.record("x", **wrong)


def test_without_a_framework_it_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(name, name=name)\n"
        "import opscope, importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'torch' else real(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "try:\n"
        "    with opscope.record('run'): pass\n"
        "except opscope.UnavailableError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith("nothing can be recorded: torch is not installed"), done.stderr
    assert not list(tmp_path.iterdir())


def test_several_may_be_given_as_a_list() -> None:
    recording = opscope.record(Path("x"), steps=[0, 5], ranks=range(2), ops=["aten::mm", "*bmm*"])
    words = recording.config.words()
    assert words["ops"] == "aten::mm,*bmm*"
    assert words["ranks"] == "0|1"
    assert recording.config.selection.wants_step(5)
    assert not recording.config.selection.wants_step(1)
    assert repr(recording) == "<Recording 'x': not recording>"


def test_a_recording_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    place = tmp_path / "<b>x"
    recording = opscope.record(place, values="none")
    with recording:
        assert "<td>state</td><td>recording</td>" in recording._repr_html_()
        assert repr(recording).endswith(": recording>")
    shown = recording._repr_html_()
    assert "<td>state</td><td>not recording</td>" in shown
    assert "<td>values</td><td>none</td>" in shown
    assert "&lt;b&gt;x" in shown
    assert "<b>" not in shown
