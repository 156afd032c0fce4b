# SPDX-License-Identifier: Apache-2.0
"""`opscope replay`: the recorded calls of a run once more, against trusted substitutes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import INTERRUPTED, note
from opscope.cli.options import (
    EVERYTHING,
    Allowed,
    Json,
    Operators,
    Python,
    Selected,
    interpreter,
    knowing_file,
    lasting,
    positive,
)
from opscope.cli.printing import INCOMPLETE, print_json
from opscope.cli.progress import Progress

if TYPE_CHECKING:
    from opscope.run.finding import Document


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """How calls are made again."""

    device: Annotated[
        str | None,
        Parameter(help="Device, cpu, cuda:0, npu:0; by default the recorded one if it is here."),
    ] = None
    repeat: Annotated[
        int, Parameter(help="How often each call is made; other bits each time are flaky.")
    ] = 1
    jobs: Annotated[
        int | None, Parameter(help="Processes at a time; by default half of the cores.")
    ] = None
    timeout: Annotated[float, Parameter(help="Seconds one call may take.")] = 300.0
    limit: Annotated[int | None, Parameter(help="At most so many calls.")] = None
    no_synthesise: Annotated[
        bool, Parameter(help="Leave out calls whose input values were not kept.")
    ] = False
    python: Python = None
    imports: Annotated[
        tuple[str, ...],
        Parameter(
            name="--import",
            help="Module, .py file or shared library whose kernels make the calls; may be given "
            "again.",
        ),
    ] = ()
    allowed: Allowed = ()
    operators: Operators = None


RESULTS = "Directory for results, where an interrupted replay goes on."
TABLE = "Also write a table with the standard checker's columns and ours."
Replaying = Annotated[ReplayOptions, Parameter(name="*")]
AS_RECORDED = ReplayOptions()


def replay(
    run: str,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help=RESULTS)] = None,
    csv: Annotated[Path | None, Parameter(help=TABLE)] = None,
    json: Json = False,
    options: Replaying = AS_RECORDED,
    selection: Selected = EVERYTHING,
) -> int:
    """Run recorded calls again from their recorded inputs, and judge each against a trusted
    substitute; no golden run is needed.

    Exit code 0: all agree, 1: a call is wrong or flaky, 2: the run cannot be read, 3: none of the
    calls could be replayed.

    Parameters
    ----------
    run
        A run, or any known dump.
    """
    from opscope.formats.registry import open_run
    from opscope.replay.api import Plan, document_of, replay_calls

    positive(repeat=options.repeat, jobs=options.jobs, timeout=options.timeout, limit=options.limit)
    plan = Plan(
        device=options.device,
        repeat=options.repeat,
        jobs=options.jobs or max(1, (os.cpu_count() or 2) // 2),
        timeout=options.timeout,
        synthesise=not options.no_synthesise,
        limit=options.limit,
        python=interpreter(options.python),
        imports=tuple(map(lasting, options.imports)),
        allowed=options.allowed,
    )
    opened, wanted = open_run(run), selection.selection()
    try:
        with knowing_file(options.operators), Progress() as progress:
            lines = list(
                replay_calls(opened, selection=wanted, plan=plan, output=output, progress=progress)
            )
    except KeyboardInterrupt:
        kept = (
            f"the same command goes on where it was (results in {output})"
            if output is not None
            else "with -o DIR it could go on"
        )
        note(f"interrupted; {kept}")
        return INTERRUPTED
    document = msgspec.structs.replace(document_of(opened, lines, wanted), runs=(run,))
    table = csv if csv is not None else None if output is None else output / "replayed.csv"
    if table is not None:
        from opscope.report.replay import write_csv

        write_csv(table, lines)
    if json:
        print_json(document)
    else:
        show(document, run)
    if document.findings:
        return 1
    return 0 if document.complete else INCOMPLETE


def show(document: Document, run: str) -> None:
    """The verdict on stdout: counts, then what is wrong, flaky, ill-conditioned, and what could not
    be replayed.
    """
    from rich.text import Text

    from opscope.report.console import folded, make_console, print_lines
    from opscope.run.printable import printable

    console = make_console()
    summary = document.summary
    counts = ", ".join(
        f"{count} {word}"
        for word, count in sorted(summary["verdicts"].items(), key=lambda item: -item[1])
    )
    lines = [
        Text(f"opscope replay  {printable(run)}", style="bold"),
        Text(f"{summary['calls']} calls: {counts or 'none selected'}"),
    ]
    for finding in document.findings[:10]:
        word = "wrong" if finding.kind == "replay-mismatch" else "flaky"
        what = f"step {finding.step}  {finding.op}  {finding.phase}  {finding.call}"
        lines += list(folded(f"{word}  ", what, width=console.width, style="bold red"))
        lines += [Text("  " + printable(finding.source))] if finding.source else []
        for reason in finding.reasons:
            lines += list(folded("  why  ", reason, width=console.width))
    if len(document.findings) > 10:
        lines.append(Text(f"and {len(document.findings) - 10} more; --json lists them"))
    for each in summary["ill_conditioned"][:5]:
        lines += list(
            folded(
                "ill-conditioned  ",
                f"step {each['step']}  {each['op']}  {each['call']}",
                width=console.width,
            )
        )
    for reason, count in sorted(summary["reasons"].items(), key=lambda item: -item[1])[:8]:
        lines += list(folded("not replayed  ", f"{count} calls: {reason}", width=console.width))
    for warning in summary["warnings"]:
        lines += list(folded("warning  ", str(warning), width=console.width, style="yellow"))
    print_lines(console, lines)
