# SPDX-License-Identifier: Apache-2.0
"""Texts of PyTorch's DebugMode, whose hashes are L1 norms and nothing else: what they tell apart,
and what they leave open.
"""

from __future__ import annotations

from pathlib import Path

import opscope
from opscope.compare.tell.comparison import Comparison

LINE = (
    "    aten::{op}(t${read}: f32[2, 2])  ->  t${made}: f32[2, 2]  # {{'input_hash': "
    "(({before},), {{}}), 'hash': {after}}}"
)
BARE = "    aten::{op}(t${read}: f32[2, 2])  ->  t${made}: f32[2, 2]"
OPS = ("relu.default", "tanh.default", "sin.default")


def written(
    path: Path, norms: list[float], *, ops: tuple[str, ...] = OPS, line: str = LINE
) -> Path:
    """A chain of calls and the norms of what they read and write."""
    rows = [
        line.format(op=op, read=place, made=place + 1, before=norms[place], after=norms[place + 1])
        for place, op in enumerate(ops)
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def compared(tmp_path: Path, target: list[float], golden: list[float], **more: str) -> Comparison:
    sides = (
        written(tmp_path / "target.txt", target, **more),
        written(tmp_path / "golden.txt", golden, **more),
    )  # type: ignore[arg-type]
    return opscope.compare(*sides)


def test_norms_name_the_first_call_that_differs(tmp_path: Path) -> None:
    assert (
        compared(tmp_path, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]).document.verdict == "clean"
    )
    found = compared(tmp_path, [1.0, 2.0, 3.5, 4.4], [1.0, 2.0, 3.0, 4.0])
    assert [finding.op for finding in found.findings] == ["aten::tanh.default"]


def test_rounding_of_norms_is_none(tmp_path: Path) -> None:
    assert (
        compared(tmp_path, [1.0, 2.0, 3.0 + 1e-7, 4.0], [1.0, 2.0, 3.0, 4.0]).document.verdict
        == "clean"
    )


def test_texts_without_hashes_are_not_called_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, [0.0] * 4, [0.0] * 4, line=BARE)
    assert found.document.summary["tensors"]["same"] == 0
    assert not found.document.complete


def test_memory_that_a_call_fills_may_have_held_anything(tmp_path: Path) -> None:
    ops = ("uniform_.default", "tanh.default", "sin.default")
    sides = [
        written(tmp_path / name, [first, 2.0, 3.0, 4.0], ops=ops)
        for name, first in (("t.txt", 7.0), ("g.txt", 1.0))
    ]
    assert opscope.compare(*sides).document.verdict == "clean"
