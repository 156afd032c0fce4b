# SPDX-License-Identifier: Apache-2.0
"""`opscope check-op`: one operator, or all, over types, shapes, layouts and values, each call held
against all witnesses.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from opscope.cli.failing import INTERRUPTED, note
from opscope.cli.options import Json, Operators, knowing_file, positive
from opscope.cli.printing import INCOMPLETE, print_json
from opscope.cli.progress import Progress
from opscope.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from opscope.run.finding import Document


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What is swept, where, and how long."""

    every: Annotated[
        bool, Parameter(name="--all", help="Sweep every operator that torch has samples of.")
    ] = False
    dtype: Annotated[
        tuple[str, ...],
        Parameter(help="Element type, float32, bfloat16 …; may be given again; by default all."),
    ] = ()
    device: Annotated[str, Parameter(help="Device, cpu, cuda:0, npu:0.")] = "cpu"
    timeout: Annotated[float, Parameter(help="Seconds the samples of one name may take.")] = 600.0
    resume: Annotated[
        Path | None,
        Parameter(help="File that keeps the answers; what it holds already is not asked again."),
    ] = None


Options = Annotated[SweepOptions, Parameter(name="*")]
AS_IT_IS = SweepOptions()
LISTED = 8  # wrong calls that are told in full
REPORT = "Also write the results as JUnit XML."


def check_op(
    op: str | None = None,
    /,
    *,
    junit: Annotated[Path | None, Parameter(help=REPORT)] = None,
    json: Json = False,
    operators: Operators = None,
    options: Options = AS_IT_IS,
) -> int:
    """Sweep an operator over torch's own samples, around vector borders, strided and with special
    values, against all witnesses.

    Exit code 0: all agree, 1: a call is wrong, 2: the words make no sense, 3: no call could be
    examined, 125: torch is not here.

    Parameters
    ----------
    op
        Operator, aten::gelu or gelu; aten::gelu_backward for a gradient.
    """
    positive(timeout=options.timeout)
    if options.every is (op is not None):
        raise UsageError("check-op wants an operator, or --all")
    if find_spec("torch") is None:
        raise UnavailableError(
            f"torch is not installed in {sys.executable}; opscope check-op runs where it is"
        )
    from opscope.sweep.api import Plan, document_of, resumed_answers, sweep_names
    from opscope.sweep.samples import names

    qualified = None if op is None else (op if "::" in op else f"aten::{op}").partition(".")[0]
    plan = Plan(
        pattern=qualified, dtypes=options.dtype, device=options.device, timeout=options.timeout
    )
    try:
        with knowing_file(operators), Progress() as progress:
            asked, sweep = names(qualified), partial(sweep_names, plan=plan, progress=progress)
            answers = list(
                sweep(asked)
                if options.resume is None
                else resumed_answers(options.resume, plan, asked, sweep)
            )
    except KeyboardInterrupt:
        note("interrupted")
        return INTERRUPTED
    document = document_of(answers, plan, qualified or "all operators")
    if junit is not None:
        from opscope.report.junit import junit_text

        junit.write_text(junit_text(document), encoding="utf-8")
    if json:
        print_json(document)
    else:
        show(document)
    if document.findings:
        return 1
    return 0 if document.complete else INCOMPLETE


def show(document: Document) -> None:
    """A table of what was examined (of all operators: of what is wrong), and each wrong call with
    its evidence.
    """
    from rich.text import Text

    from opscope.report.console import folded, make_console, print_lines
    from opscope.report.table import print_table
    from opscope.run.printable import printable

    console, summary = make_console(), document.summary
    calls = f"{summary['calls']} calls of {len(summary['table'])} operators and types"
    print_lines(
        console,
        [
            Text(
                f"opscope  {printable(summary['asked'])} on {printable(summary['device'])}: "
                f"{calls}",
                style="bold",
            )
        ],
    )
    rows = [row for row in summary["table"] if row["wrong"] or summary["asked"] != "all operators"]
    if rows:
        print_table(
            {
                "operator": row["op"],
                "type": row["dtype"],
                "calls": row["examined"],
                "wrong": row["wrong"],
            }
            for row in rows
        )
    lines: list[Text] = []
    for finding in document.findings[:LISTED]:
        types = finding.evidence[0]["tensors"]
        lines += list(
            folded(
                "wrong  ",
                f"{finding.op}  {finding.confidence}  {finding.call}",
                width=console.width,
                style="bold red",
            )
        )
        lines += [Text(printable(f"  {slot}  {text}")) for slot, text in types.items()]
        for reason in finding.reasons:
            lines += list(folded("  why  ", reason, width=console.width))
    if len(document.findings) > LISTED:
        lines.append(Text(f"and {len(document.findings) - LISTED} more; --json lists them"))
    for warning in summary["warnings"]:
        lines += list(folded("warning  ", str(warning), width=console.width, style="yellow"))
    print_lines(console, lines)
