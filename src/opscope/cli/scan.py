# SPDX-License-Identifier: Apache-2.0
"""`opscope scan`: the first overflow, NaN or Inf of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from opscope.cli.options import EVERYTHING, Engine, Json, Operators, Selected, knowing_file
from opscope.cli.printing import INCOMPLETE, print_json, tell_page
from opscope.cli.progress import Progress
from opscope.errors import UsageError
from opscope.run.finding import Document, Finding
from opscope.run.printable import printable

SHOW_HIDDEN = (
    "List what the program itself guards against too: NaN and Inf that a where, clamp, "
    "mask or nanmean removed in the same step."
)
OUTPUT = (
    "Also write the findings to a file: .sarif for code scanning, .xml for JUnit, .json for the "
    "document."
)
ANNOTATE = "Print the findings as annotations of GitHub Actions, in place of the verdict."
FAIL_ON = "Exit 1 for any finding, or only for one that reached a loss, a gradient or a parameter."


def scan(  # noqa: PLR0913 - the options of the verb
    run: str,
    /,
    *,
    json: Json = False,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help=OUTPUT)] = None,
    annotate: Annotated[bool, Parameter(help=ANNOTATE, negative=())] = False,
    fail_on: Annotated[Literal["any", "reached"], Parameter(help=FAIL_ON)] = "any",
    show_hidden: Annotated[bool, Parameter(help=SHOW_HIDDEN, negative=())] = False,
    executor: Engine = None,
    operators: Operators = None,
    selection: Selected = EVERYTHING,
) -> int:
    """Name the first overflow, NaN or Inf of a run: its origin, what spread it, what hid it, and
    its source line.

    Exit code 0: nothing found, 1: something found, 2: the run cannot be read, 3: nothing found in
    an incomplete run.

    Parameters
    ----------
    run
        A run, or any known dump.
    """
    from opscope.engine.executors import executor_of
    from opscope.formats.registry import open_run
    from opscope.report.exports import annotation_lines, check_ending, export
    from opscope.scan.api import scan as ask

    if json and annotate:
        raise UsageError("--json and --annotate exclude one another")
    if output is not None:
        check_ending(output)
    with knowing_file(operators), executor_of(executor) as pool, Progress() as progress:
        document = ask(
            open_run(run),
            selection=selection.selection(),
            show_hidden=show_hidden,
            executor=pool,
            progress=progress,
        )
    document = msgspec.structs.replace(document, runs=(run,))
    if output is not None:
        export(document, output, here=Path.cwd())
    if annotate:
        for annotation in annotation_lines(document, Path.cwd()):
            print(printable(annotation))
    elif json:
        print_json(document)
    else:
        from opscope.report.terminal import print_verdict

        print_verdict(document)
        tell_page(run)
    return exit_code(document, fail_on=fail_on)


def exit_code(document: Document, *, fail_on: str) -> int:
    """1 for findings that count, 3 when there is none but the run was incomplete, else 0."""
    counted = [finding for finding in document.findings if fail_on == "any" or _reached(finding)]
    if counted:
        return 1
    return 0 if document.complete else INCOMPLETE


def _reached(finding: Finding) -> bool:
    """Whether a finding did damage; only an origin can stay without consequence."""
    return finding.kind != "overflow-origin" or any(
        record.get("reached") for record in finding.evidence
    )
