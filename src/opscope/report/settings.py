# SPDX-License-Identifier: Apache-2.0
"""Prepared settings as a person reads them: files, variables, lines for the program, advice, what
will appear.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rich.text import Text

from opscope.formats.settings.kinds import Prepared
from opscope.formats.settings.problem import Problem, notes
from opscope.report.console import folded, line


def prepared_lines(prepared: Prepared, written: Sequence[str], *, width: int) -> Iterator[Text]:
    """Everything to do before the next run, in the order it is done."""
    for path in written:
        yield line(("wrote  ", "bold"), path)
    for where in dict.fromkeys(variable.where for variable in prepared.environment):
        yield from folded("set    ", where, width=width, style="bold")
        for variable in prepared.environment:
            if variable.where == where:
                yield line(f"         export {variable.name}={shlex.quote(variable.value)}")
    for snippet in prepared.snippets:
        yield from folded("add    ", snippet.where, width=width, style="bold")
        for text in snippet.text.splitlines():
            yield line(f"         {text}" if text else "")
    for problem in notes(prepared.problems):
        yield from folded("note   ", problem.line(), width=width, style="yellow")
    for advice in prepared.advice:
        yield from folded("mind   ", advice, width=width)
    if prepared.result:
        yield from folded("gives  ", prepared.result, width=width, style="bold")


def problem_lines(problems: Sequence[Problem], *, width: int) -> Iterator[Text]:
    """Remarks on a file somebody wrote."""
    for problem in problems:
        style = "bold red" if problem.severity == "error" else "yellow"
        yield from folded(f"{problem.severity:<7}", problem.line(), width=width, style=style)
