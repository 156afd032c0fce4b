# SPDX-License-Identifier: Apache-2.0
"""The line of an installed library that the user's own line led to: who only calls
`trainer.train()` wants to know the layer too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opscope.run.query import records

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

INSTALLED = ("/site-packages/", "/dist-packages/")
FRAMEWORKS = ("torch/", "tensorflow/")


def library_lines(run: Run, calls: Iterable[Call]) -> Mapping[tuple[int, int], str]:
    """`/full/path/modeling_gpt2.py:178` by (process, index): the innermost line of a library, torch
    and TensorFlow apart, below the user's own line.
    """
    wanted: dict[tuple[int, int], list[Call]] = {}
    for call in calls:
        if call.stack is not None and call.source is not None:
            wanted.setdefault((call.process, call.stack), []).append(call)
    lines: dict[tuple[int, int], str] = {}
    if not wanted:
        return lines
    for row in records(run, "stacks"):
        for call in wanted.get((row.process, row.stack), ()):
            line = library_line(row.frames, str(call.source))
            if line is not None:
                lines[call.process, call.index] = line
    return lines


def library_line(frames: Sequence[str], source: str) -> str | None:
    """The innermost frame of an installed package other than torch and TensorFlow that lies below
    the line of source; frames are innermost first.
    """
    for frame in frames:
        line = frame.rpartition(" in ")[0]
        if line == source:
            return None
        package = next((line.partition(mark)[2] for mark in INSTALLED if mark in line), "")
        if package and not package.startswith(FRAMEWORKS):
            return line
    return None
