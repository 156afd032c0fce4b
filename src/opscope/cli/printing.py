# SPDX-License-Identifier: Apache-2.0
"""What verbs share when they print: documents in pieces, and what is missing from a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from opscope.cli.failing import note
from opscope.run.printable import printable

if TYPE_CHECKING:
    from opscope.run.protocol import Run

INCOMPLETE = 3


def write_pieces(pieces: Iterable[str]) -> None:
    """Write one document to stdout, piece by piece."""
    for piece in pieces:
        sys.stdout.write(piece)
    sys.stdout.write("\n")


def say(*lines: str) -> None:
    """Lines of a result on stdout."""
    for line in lines:
        print(printable(line))


def tell_page(*runs: str) -> None:
    """Say which command opens these runs in the browser, where somebody sits at a terminal."""
    if sys.stderr.isatty():
        command = f"opscope report {shlex.join(runs)} -o report.html"
        print(printable(f"page  {command}"), file=sys.stderr)


def completeness(run: Run) -> int:
    """Say on stderr what is torn or missing; the exit code for that, 0 when nothing is."""
    for problem in run.problems:
        note(problem)
    return INCOMPLETE if run.problems else 0


def print_json(value: Any) -> None:
    """A document, or what else a verb answers, on stdout as one line of JSON."""
    from opscope.report.json import json_text

    print(json_text(value))
