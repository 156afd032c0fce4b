# SPDX-License-Identifier: Apache-2.0
"""The assertion that a run agrees with its golden."""

from __future__ import annotations

from itertools import pairwise

import pytest

from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor
from opscope.testing import assert_matches


def run(
    *contents: int, op: str = "aten::relu.default", problems: tuple[str, ...] = ()
) -> MemoryRun:
    """A chain of calls; equal contents are equal tensors."""
    calls, tensors = [], []
    for index, (before, after) in enumerate(pairwise(contents)):
        name = f"<root>:relu#{index + 1}"
        calls.append(
            Call(
                process=0,
                rank=0,
                step=0,
                index=index,
                level="operator",
                phase="forward",
                op=op,
                name=name,
                source="/a/train.py:3",
            )
        )
        for io, version, content in (("input", index, before), ("output", index + 1, after)):
            value = float(content + 1)
            tensors.append(
                Tensor(
                    process=0,
                    index=index,
                    io=io,
                    slot="0",
                    version=version,
                    storage=version,
                    offset=0,
                    dtype="float32",
                    shape=(4,),
                    size=4,
                    nan=0,
                    pos_inf=0,
                    neg_inf=0,
                    zero=0,
                    neg=0,
                    pos=4,
                    min=value,
                    max=value,
                    mean=value,
                    l2norm=2 * value,
                    digest=content,
                )
            )
    return MemoryRun(
        RunInfo(path="rows", format="test"),
        [Process(process=0, directory="p")],
        calls,
        tensors,
        problems=problems,
    )


def test_equal_runs_match() -> None:
    assert_matches(run(0, 1, 2), run(0, 1, 2))


def test_the_operator_and_its_line_are_named() -> None:
    with pytest.raises(
        AssertionError,
        match=r"<root>:relu#2 \(aten::relu.default\) at /a/train.py:3: its inputs agree",
    ):
        assert_matches(run(0, 1, 7), run(0, 1, 2))


def test_an_inserted_call_fails_unless_structure_does_not_matter() -> None:
    target = run(0, 1, 1, 2)
    with pytest.raises(AssertionError, match="structural-difference"):
        assert_matches(target, run(0, 1, 2))
    assert_matches(target, run(0, 1, 2), structure=False)


def test_an_incomplete_comparison_does_not_pass() -> None:
    with pytest.raises(AssertionError, match="torn"):
        assert_matches(run(0, 1, problems=("torn at byte 7",)), run(0, 1))
