# SPDX-License-Identifier: Apache-2.0
"""`opscope bisect`: which operators, run on a substitute, make a command's failure go away."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import INTERRUPTED, note
from opscope.cli.options import Json, Operators, knowing_file, positive
from opscope.cli.printing import print_json
from opscope.cli.progress import Progress
from opscope.errors import UsageError
from opscope.run.finding import Document, Finding

if TYPE_CHECKING:
    from opscope.bisect.search import Bisected
    from opscope.bisect.trials import Trials

TAKES_VALUE = (
    "--oracle",
    "--metric",
    "--substitute",
    "--ops",
    "--output",
    "-o",
    "--trials",
    "--timeout",
    "--hook",
    "--operators",
)
TAKES_TWO = ("--between",)
SWITCHES = ("--json", "--compile")


@dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """What is searched for, and how long."""

    oracle: Annotated[
        str | None,
        Parameter(
            help="Command that judges each trial, its output on stdin: exit 0 good, 1 bad, 125 "
            "unclear."
        ),
    ] = None
    metric: Annotated[
        str | None,
        Parameter(
            help="What good is, of the last value printed: 'loss<2.5', 'name-regex(RE)>0.9'."
        ),
    ] = None
    substitute: Annotated[
        str, Parameter(help="Kind of substitute: cpu, float64, float32, decomposition.")
    ] = "cpu"
    ops: Annotated[
        str | None, Parameter(help="Operators searched: globs over operator, name-regex(RE).")
    ] = None
    trials: Annotated[int, Parameter(help="Most runs of the command.")] = 100
    timeout: Annotated[
        float | None,
        Parameter(
            help="Seconds a run may take; one that takes longer hangs [50 times the first, 1800 "
            "at first]."
        ),
    ] = None
    between: Annotated[
        tuple[str, str] | None,
        Parameter(help="Search the differences of two runs, bad and good, instead of operators."),
    ] = None
    compile: Annotated[
        bool,
        Parameter(
            negative="",
            help="Search what torch.compile compiles: graphs, then operators, run eagerly.",
        ),
    ] = False
    hook: Annotated[
        str | None,
        Parameter(
            help="With --between: command that applies package versions, name==version … as its "
            "words."
        ),
    ] = None
    operators: Operators = None


Found: TypeAlias = "tuple[Bisected, tuple[Finding, ...]]"
Search: TypeAlias = "Callable[[Sequence[str], Path, BisectOptions, Callable[[int], None]], Found]"
Options = Annotated[BisectOptions, Parameter(name="*")]
AS_IT_IS = BisectOptions()


def with_command_apart(words: Sequence[str]) -> list[str]:
    """`bisect` and its words with `--` before the command, so that no option of the command is
    taken for one of ours.
    """
    at = 1
    while at < len(words):
        word = words[at]
        if word == "--":
            return list(words)
        if not word.startswith("-"):
            return [*words[:at], "--", *words[at:]]
        at += 3 if word in TAKES_TWO else 2 if word in TAKES_VALUE else 1
    return list(words)


def bisect(
    *command: str,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"], help="Folder of the search; the same one goes on with it."
        ),
    ] = None,
    json: Json = False,
    options: Options = AS_IT_IS,
) -> int:
    """Run a command again and again, operators on a trusted substitute, until the ones are known
    that make its failure go away.

    The failure is what the command shows: an exception, an exit code, a hang, values that are not
    finite, or what --metric or
    --oracle say. Exit code 1: found, 2: the command does not fail, or before any operator, 125: it
    cannot be told, 130: interrupted.

    Parameters
    ----------
    command
        The command and its arguments, after --.
    """
    from opscope.record.launch import check_command, script_name

    check_command(command, verb="bisect")
    positive(trials=options.trials, timeout=options.timeout)
    folder = output if output is not None else Path("runs") / f"bisect-{script_name(command)}"
    search = _search_of(options)
    try:
        with knowing_file(options.operators), Progress() as progress:
            bisected, findings = search(
                command,
                folder,
                options,
                lambda made: progress("runs of the command, at most", made, options.trials),
            )
    except KeyboardInterrupt:
        note(f"interrupted; the same command goes on where it was (log in {folder})")
        return INTERRUPTED
    if json:
        summary = {**msgspec.structs.asdict(bisected), "folder": str(folder)}
        verdict = "found" if findings else "clean"
        print_json(
            Document(
                verb="bisect",
                runs=(str(folder),),
                verdict=verdict,
                findings=findings,
                summary=summary,
            )
        )
    _print(bisected, findings, to_stderr=json)
    return 1 if bisected.guilty else 125


def _search_of(options: BisectOptions) -> Search:
    """What is searched; UsageError for options that do not go together."""
    if not options.compile:
        return _operators if options.between is None else _differences
    if options.between is not None or options.ops is not None or options.substitute != "cpu":
        raise UsageError(
            "--compile searches the graphs of torch.compile; leave --between, --ops and "
            "--substitute out"
        )
    return _graphs


def _trials(
    command: Sequence[str],
    folder: Path,
    options: BisectOptions,
    told: Callable[[int], None],
    question: str,
) -> Trials:
    """The folder of a search; its recordings are told what operators are as the search is."""
    from opscope.bisect.trials import Trials

    file = options.operators
    return Trials(
        folder,
        command,
        question=question,
        timeout=options.timeout,
        recording=() if file is None else ("--operators", str(file)),
        told=told,
    )


def _operators(
    command: Sequence[str], folder: Path, options: BisectOptions, told: Callable[[int], None]
) -> Found:
    from opscope.bisect.api import Asked, bisect_operators, operator_findings
    from opscope.bisect.oracle import chosen_oracle
    from opscope.formats.registry import open_run
    from opscope.run.selection import parse_pattern
    from opscope.scan.api import scan
    from opscope.substitute.registry import kind_named

    kind_named(options.substitute)
    pattern = None if options.ops is None else parse_pattern(options.ops)
    oracle = chosen_oracle(options.oracle, options.metric)
    asked = Asked(
        oracle=oracle,
        kind=options.substitute,
        most=options.trials,
        ops=(lambda op: True) if pattern is None else lambda op: pattern.matches(op, None, None),  # noqa: ARG005
    )
    question = repr((options.oracle, options.metric, options.substitute, options.ops))
    trials = _trials(command, folder, options, told, question)
    bisected, document = bisect_operators(
        trials,
        asked,
        scan=lambda run: scan(open_run(str(run))),
        open_run=lambda run: open_run(str(run)),
        tell=note,
    )
    return bisected, operator_findings(bisected, document, trials.records)


def _graphs(
    command: Sequence[str], folder: Path, options: BisectOptions, told: Callable[[int], None]
) -> Found:
    from opscope.bisect.graphs import bisect_graphs
    from opscope.bisect.oracle import chosen_oracle
    from opscope.formats.registry import open_run
    from opscope.scan.api import scan

    question = repr((options.oracle, options.metric, "compile"))
    return bisect_graphs(
        _trials(command, folder, options, told, question),
        chosen_oracle(options.oracle, options.metric),
        most=options.trials,
        scan=lambda run: scan(open_run(str(run))),
        open_run=lambda run: open_run(str(run)),
        tell=note,
    )


def _differences(
    command: Sequence[str], folder: Path, options: BisectOptions, told: Callable[[int], None]
) -> Found:
    from opscope.bisect.differences import Means, bisect_differences, differences
    from opscope.bisect.oracle import chosen_oracle
    from opscope.formats.registry import open_run
    from opscope.scan.api import scan

    if options.between is None:
        raise UsageError("--between needs two runs, the bad and the good one")
    bad, good = map(open_run, options.between)
    elements = differences(bad, good)
    question = repr(
        (options.oracle, options.metric, options.hook, [element.name for element in elements])
    )
    trials = _trials(command, folder, options, told, question)
    bisected = bisect_differences(
        trials,
        elements,
        Means(
            oracle=chosen_oracle(options.oracle, options.metric),
            hook=options.hook,
            most=options.trials,
        ),
        scan=lambda run: scan(open_run(str(run))),
        tell=note,
    )
    return bisected, ()


def _print(bisected: Bisected, findings: Sequence[Finding], *, to_stderr: bool) -> None:
    from opscope.report.console import line, make_console

    console = make_console(stderr=to_stderr)
    if not bisected.guilty:
        console.print(line(("cannot tell", "bold yellow"), f": {bisected.why}"))
        return
    console.print(
        line(
            ("guilty  ", "bold red") if bisected.proven else ("suspect ", "bold yellow"),
            ", ".join(bisected.guilty),
        )
    )
    for finding in findings:
        if finding.source is not None:
            console.print(line(f"  {finding.source}   {finding.call or ''}"))
    if not bisected.proven:
        console.print(
            line(
                ("why     ", "bold"),
                "wrong when its calls were made again on the substitute; not proven:",
            )
        )
        console.print(line(f"        {bisected.why}"))
        return
    they = "they are" if len(bisected.guilty) > 1 else "it is"
    console.print(
        line(
            ("why     ", "bold"),
            f"{bisected.question}; {bisected.why} when {they} {bisected.change}",
        )
    )
    if bisected.stage is not None:
        console.print(line(("stage   ", "bold"), bisected.stage))
    console.print(
        line(f"        {bisected.trials} runs of the command over {bisected.candidates} candidates")
    )
    console.print(
        line(
            ("see     ", "bold"),
            f"{shlex.quote(str(bisected.good))} and {shlex.quote(str(bisected.bad))}",
        )
    )
