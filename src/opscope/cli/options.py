# SPDX-License-Identifier: Apache-2.0
"""Options that mean the same on every verb that has them."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from opscope.errors import UsageError
from opscope.run.selection import Selection, parse_selection

Python = Annotated[
    str | None,
    Parameter(
        name="--python",
        help="Interpreter that makes the calls, where another one has the framework than this.",
    ),
]
Json = Annotated[bool, Parameter(help="One JSON document on stdout, and nothing else there.")]


Operators = Annotated[
    Path | None,
    Parameter(
        name="--operators",
        help="File that says what operators are: a line each, its name and its traits; it "
        "overrules what opscope knows.",
    ),
]


def knowing_file(operators: Path | None) -> AbstractContextManager[None]:
    """A block in which what a file of operators says counts; UsageError where it cannot be read."""
    from opscope.operators.catalogue import knowing
    from opscope.operators.declare import read_operators

    return nullcontext() if operators is None else knowing(declared=read_operators(operators))


Engine = Annotated[
    str | None,
    Parameter(
        name="--executor",
        help="Who reads the ranks: processes:N, dask://HOST:PORT, ray or ray://HOST:PORT.",
    ),
]


def interpreter(given: str | None) -> str | None:
    """The interpreter that --python names, as it is found from every folder; UsageError where there
    is none.
    """
    if given is None:
        return None
    program = shutil.which(given)
    if program is None:
        raise UsageError(f"--python {given}: no such program")
    return str(Path(program).absolute())


def positive(**given: float | None) -> None:
    """UsageError for the first of these options whose number is not above zero; None is one that
    was not given.
    """
    for name, number in given.items():
        if number is not None and not number > 0:
            raise UsageError(f"--{name} {number:g}: wants a number above 0")


Allowed = Annotated[
    tuple[str, ...],
    Parameter(
        name="--allow",
        help="Operator to call though it may touch more than its tensors, a glob; may be given "
        "again.",
    ),
]


def lasting(name: str) -> str:
    """A library's name as it is understood from every directory."""
    return str(Path(name).absolute()) if Path(name).is_file() else name


def recorded_by(command: Sequence[str]) -> str | None:
    """Another Python interpreter than this one that a run's command names, to be shown to the user;
    a path from a file is never run unasked.
    """
    first = command[0] if command else ""
    if first == sys.executable:
        return None
    named = re.fullmatch(r"python[0-9.]*", Path(first).name) is not None
    return (
        first
        if named and first.isprintable() and Path(first).is_absolute() and Path(first).exists()
        else None
    )


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Which part of a run is meant."""

    steps: Annotated[str | None, Parameter(help="Steps, 0|5-8.")] = None
    ranks: Annotated[str | None, Parameter(help="Ranks, 0,7; tp=2,dp=4: one of each role.")] = None
    ops: Annotated[
        str | None,
        Parameter(help="Operators: globs over operator, name and module, name-regex(RE)."),
    ] = None
    skip: Annotated[str | None, Parameter(help="Operators left out.")] = None
    phases: Annotated[
        str | None, Parameter(help="forward, backward, optimizer, recompute, communication.")
    ] = None
    io: Annotated[str, Parameter(help="Tensors: input, output or both.")] = "both"
    levels: Annotated[str | None, Parameter(help="operator, module, api.")] = None

    def selection(self) -> Selection:
        """What is selected; UsageError for a text that cannot be read."""
        return parse_selection(**asdict(self))


Selected = Annotated[SelectionOptions, Parameter(name="*")]
EVERYTHING = SelectionOptions()
