# SPDX-License-Identifier: Apache-2.0
"""Examples of the help can be typed, and the manual page has them, with every option."""

from __future__ import annotations

import re
import shlex

import pytest

from opscope.cli.app import VERBS, make_app
from opscope.cli.bisect import with_command_apart as bisect_apart
from opscope.cli.completion import man_page
from opscope.cli.examples import EXAMPLES, examples_of
from opscope.cli.run import with_command_apart as run_apart

WIDTH = 80


@pytest.mark.parametrize("verb", list(dict(VERBS)))
def test_every_verb_has_two_examples_that_can_be_typed(verb: str) -> None:
    assert len(EXAMPLES[verb]) >= 2
    for typed, _ in EXAMPLES[verb]:
        words = shlex.split(re.sub(r" >>? [~\w/.-]+$", "", typed))
        assert words[0] == verb
        apart = {"run": run_apart, "bisect": bisect_apart}.get(verb, list)
        make_app().parse_args(apart(words), exit_on_error=False, print_error=False)


def test_no_verb_has_examples_that_is_none() -> None:
    assert EXAMPLES.keys() == dict(VERBS).keys()


def test_no_example_is_wider_than_a_terminal() -> None:
    lines = [line for verb in EXAMPLES for line in examples_of(verb).splitlines()]
    assert [line for line in lines if len(line) > WIDTH] == []


def test_help_ends_with_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    make_app()(["scan", "--help"], result_action="return_value")
    assert capsys.readouterr().out.rstrip().endswith(examples_of("scan"))


def test_the_manual_page_has_every_verb_and_option() -> None:
    text = man_page(make_app()).replace("\\-", "-")
    assert [verb for verb in EXAMPLES if f".SS opscope {verb}\n" not in text] == []
    assert "--show-hidden" in text
    assert "--stop-after" in text
    assert "opscope scan runs/x --annotate" in text


def test_no_text_is_taken_for_a_command_of_roff() -> None:
    lines = man_page(make_app()).splitlines()
    macros = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert macros == {".TH", ".SH", ".B", ".SS", ".TP", ".PP", ".br"}
    assert {escape for line in lines for escape in re.findall(r"\\(.)", line)} <= set("-fe&")
