# SPDX-License-Identifier: Apache-2.0
"""From which of several lines a helper function was called."""

from __future__ import annotations

from opscope.compare.tell.lines import call_sites
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Stack

PLACES = {
    "norm": "/me/port.py:20",
    "mean": "/me/port.py:16",
    "first": "/me/port.py:54",
    "second": "/me/port.py:55",
    "model": "/me/port.py:80",
    "again": "/me/port.py:90",
    "torch": "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1775",
    "runpy": "<frozen runpy>:88",
}


def sites(asked: str, *others: str) -> tuple[str, ...]:
    """Of the call with this stack, innermost first, beside others; each in words of PLACES."""
    stacks = [
        Stack(
            process=0,
            stack=number,
            frames=tuple(f"{PLACES[word]} in {word}" for word in stack.split()),
        )
        for number, stack in enumerate((asked, *others))
    ]
    source = PLACES[asked.split(maxsplit=1)[0]]
    call = Call(process=0, rank=0, index=0, op="aten::mean.dim", level="operator", step=0,
                phase="forward", name="mean#0", stack=0, source=source)  # fmt: skip
    run = MemoryRun(RunInfo(path="rows", format="test"), [], [call], [], stacks=stacks)
    found = call_sites(run, call)
    words = {place: word for word, place in PLACES.items()}
    return tuple(words[place] for place in found)


def test_a_line_that_is_reached_in_one_way_is_told_with_what_called_its_function() -> None:
    assert sites("norm model again runpy") == ("model",)
    assert sites("norm model again", "mean model again", "first model again") == ("model",)
    assert sites("norm runpy") == ()


def test_the_line_that_called_a_helper_tells_it_from_its_other_calls() -> None:
    assert sites("norm first model", "norm second model") == ("first",)


def test_a_helper_of_a_helper_is_told_by_what_called_the_outer_one() -> None:
    assert sites("mean norm second model", "mean norm first model") == ("norm", "second")


def test_what_torch_runs_in_between_is_no_line_of_the_program() -> None:
    assert sites("norm torch second torch model", "norm torch first torch model") == ("second",)


def test_two_lines_that_tell_it_are_told_at_most() -> None:
    others = "mean second model again", "mean norm second again", "mean norm first again"
    assert sites("mean norm first model", *others) == ("norm", "first")


def test_a_call_without_a_stack_has_none() -> None:
    call = Call(process=0, rank=0, index=0, op="aten::mm.default", level="operator", step=0,
                phase="backward", name="mm#0")  # fmt: skip
    assert call_sites(MemoryRun(RunInfo(path="rows", format="test"), [], [call], []), call) == ()
