# SPDX-License-Identifier: Apache-2.0
"""A pattern that matches nothing is named, with the names that look like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_rows import call, new_run

from opscope.run.arrow import encode_rows
from opscope.run.selection import Selection, parse_selection
from opscope.run.store.reader import NativeRun
from opscope.run.unmatched import unmatched


@pytest.fixture
def run(tmp_path: Path) -> NativeRun:
    path, writer = new_run(tmp_path)
    rows = [
        call(
            0, op="aten::_softmax.default", name="blocks.0.attn:_softmax#1", module="blocks.0.attn"
        ),
        call(1, op="aten::bmm.default", name="blocks.0.attn:bmm#1", module="blocks.0.attn"),
    ]
    writer.append("calls", encode_rows("calls", rows), step=0)
    writer.close(0)
    return NativeRun(path)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, []),
        ({"ops": "bmm,*softmax*", "skip": "blocks.0.*"}, []),
        ({"ops": "name-regex(bmm#1$)"}, []),
        (
            {"ops": "bmm,softmx"},
            ["--ops 'softmx' matches nothing in this run; near names: _softmax"],
        ),
        ({"steps": "99"}, ["--steps matches nothing: the run has step 0"]),
        ({"steps": "0|99", "ranks": "0"}, []),
        (
            {"ranks": "3-5", "skip": "zzzz"},
            [
                "--ranks matches nothing: the run has rank 0",
                "--skip 'zzzz' matches nothing in this run",
            ],
        ),
        ({"skip": "zzzz"}, ["--skip 'zzzz' matches nothing in this run"]),
        (
            {"ops": "block.0.attn"},
            ["--ops 'block.0.attn' matches nothing in this run; near names: blocks.0.attn"],
        ),
    ],
)
def test_parts_that_match_nothing_are_named(
    run: NativeRun, options: dict[str, str], lines: list[str]
) -> None:
    assert list(unmatched(run, parse_selection(**options))) == lines


def test_no_selection_reads_nothing() -> None:
    assert unmatched(None, None) == unmatched(None, Selection()) == ()  # type: ignore[arg-type]
