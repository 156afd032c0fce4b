# SPDX-License-Identifier: Apache-2.0
"""Answers of a sweep in a file, a line each, so that one that was ended goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from opscope.errors import FormatError, UsageError
from opscope.operators.catalogue import declared_rows
from opscope.sweep.api import Plan
from opscope.sweep.tasks import Answer

Sweep = Callable[[Sequence[str]], Iterable[Answer]]


def kept_answers(path: Path, plan: Plan, names: Sequence[str], sweep: Sweep) -> Iterator[Answer]:
    """Answers of these names: those that the file holds, then those of sweep, which are added to
    it.

    Raises UsageError for a file of another plan, and FormatError for one that is none.
    """
    known = {answer.name: answer for answer in _read(path, plan)}
    yield from (known[name] for name in names if name in known)
    with path.open("ab") as file:
        if not file.tell():
            file.write(msgspec.json.encode(_head(plan)) + b"\n")
        for answer in sweep([name for name in names if name not in known]):
            file.write(msgspec.json.encode(answer) + b"\n")
            file.flush()
            yield answer


def _head(plan: Plan) -> dict[str, object]:
    declared = msgspec.to_builtins(declared_rows())
    return {
        "op": plan.pattern,
        "dtypes": list(plan.dtypes),
        "device": plan.device,
        **({"declared": declared} if declared else {}),
    }


def _read(path: Path, plan: Plan) -> Iterator[Answer]:
    """Answers of a file, without a last line that was not finished; none where there is no file."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        path.write_bytes(b"".join(lines[:-1]))
        lines.pop()
    try:
        if lines and msgspec.json.decode(lines[0]) != _head(plan):
            raise UsageError(f"{path} holds answers to other options; name another file")
        for line in lines[1:]:
            yield msgspec.json.decode(line, type=Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(path, f"no answers of check-op ({error}); name another file") from error
