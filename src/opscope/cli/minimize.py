# SPDX-License-Identifier: Apache-2.0
"""`opscope minimize`: a repro folder, made as small as it goes while it still fails in the same
way.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import INTERRUPTED, note
from opscope.cli.options import Allowed, Json, Python, interpreter, lasting, positive
from opscope.cli.printing import print_json
from opscope.cli.progress import Progress
from opscope.errors import UsageError
from opscope.run.finding import Document

if TYPE_CHECKING:
    from opscope.minimize.minimized import Minimized, Size


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How long is searched, and with which libraries."""

    python: Python = None
    seconds: Annotated[
        float,
        Parameter(
            name="--budget", help="Seconds the search may take; the best case so far is kept."
        ),
    ] = 300.0
    timeout: Annotated[
        float, Parameter(help="Seconds one call may take before it counts as hanging.")
    ] = 20.0
    imports: Annotated[
        tuple[str, ...],
        Parameter(
            name="--import",
            help="Library to load, such as those the case names; may be given again.",
        ),
    ] = ()
    allowed: Allowed = ()


Options = Annotated[SearchOptions, Parameter(name="*")]
USUAL = SearchOptions()


def minimize(
    directory: Path,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="The folder to write [DIR-min]; one that exists gets a sibling.",
        ),
    ] = None,
    json: Json = False,
    search: Options = USUAL,
) -> int:
    """Shrink a repro folder while the same failure stays: shapes, values, strides, element types,
    arguments.

    Exit code 1: the failure shows and the smaller folder is written, 0: it does not show here, 2:
    the folder is none of opscope's, 125: it cannot be tried here, 130: Ctrl-C, the best so far is
    written.

    Parameters
    ----------
    directory
        A folder that opscope repro wrote. None of its code is executed.
    """
    from opscope.ascend.case import is_case
    from opscope.minimize.api import minimize as shrink
    from opscope.minimize.minimized import Limits

    positive(budget=search.seconds, timeout=search.timeout)
    if is_case(directory):
        reason = (
            "a compiled kernel runs with the shapes and the tiling it was given, so its case "
            "cannot shrink"
        )
        raise UsageError(f"{directory}: {reason}; opscope repro tries it")
    wanted = (
        output
        if output is not None
        else directory.absolute().with_name(f"{directory.absolute().name}-min")
    )
    imports = tuple(map(lasting, search.imports))
    with Progress() as progress:
        minimized = shrink(
            directory,
            wanted,
            imports=imports,
            allowed=search.allowed,
            limits=Limits(search=search.seconds, call=search.timeout),
            python=interpreter(search.python),
            tell=note,
            progress=progress,
        )
    code = minimized.outcome.exit_code if minimized.outcome is not None else 0
    if json:
        summary = {**msgspec.structs.asdict(minimized), "word": _word(minimized)}
        verdict = "found" if minimized.shown else "clean"
        print_json(
            Document(
                verb="minimize",
                runs=(str(directory),),
                verdict=verdict,
                summary=summary,
            )
        )
    else:
        _print(minimized, python=search.python or "python")
    return INTERRUPTED if minimized.ended == "interrupted" else code


def _word(minimized: Minimized) -> str:
    if minimized.directory is None:
        return "not reproduced here"
    return {
        "done": "minimized",
        "time": "minimized until the time was up",
        "interrupted": "minimized until interrupted",
    }[minimized.ended]


def _print(minimized: Minimized, *, python: str) -> None:
    from opscope.report.console import folded, make_console, print_lines
    from opscope.report.trial import next_lines, trial_lines, verdict_lines

    console = make_console()
    width = console.width
    if (
        minimized.directory is None
        or minimized.before is None
        or minimized.after is None
        or minimized.outcome is None
    ):
        print_lines(
            console,
            verdict_lines(_word(minimized), minimized.told, style="bold green", width=width),
        )
        return
    flaky = (
        ""
        if minimized.shown == minimized.tried
        else f"; flaky, {minimized.shown}/{minimized.tried} at first"
    )
    print_lines(console, trial_lines(minimized.outcome.lines[:-1], width=width))
    print_lines(console, folded("before ", _size(minimized.before), width=width, style="bold"))
    print_lines(console, folded("after  ", _size(minimized.after), width=width, style="bold"))
    word = f"{_word(minimized)} in {minimized.trials} trials"
    print_lines(
        console,
        verdict_lines(word, f"{minimized.outcome.reason}{flaky}", style="bold red", width=width),
    )
    print_lines(
        console,
        next_lines(shlex.join([python, str(Path(minimized.directory) / "repro.py")]), width=width),
    )


def _size(size: Size) -> str:
    shapes = ", ".join(f"{slot} {list(shape)}" for slot, shape in size.shapes.items())
    return f"{size.elements} elements, {size.telling} neither 0 nor 1, {size.bytes} bytes: {shapes}"
