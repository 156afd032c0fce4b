# SPDX-License-Identifier: Apache-2.0
"""`opscope repro`: one call, cut out into a folder that stands alone, and tried at once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.finding_calls import chosen_call, first_found
from opscope.cli.options import (
    Allowed,
    Json,
    Operators,
    Python,
    interpreter,
    knowing_file,
    lasting,
    positive,
    recorded_by,
)
from opscope.cli.printing import completeness, print_json
from opscope.errors import UsageError
from opscope.run.finding import Document

if TYPE_CHECKING:
    from opscope.repro import Outcome, Repro
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

WORDS = {
    "reproduced": "reproduced",
    "flaky": "flaky",
    "not-reproduced": "not reproduced here",
    "cannot-try": "cannot be tried here",
    "timeout": "no verdict",
    "died": "no verdict",
}
STYLES = {"reproduced": "bold red", "flaky": "bold yellow", "not-reproduced": "bold green"}


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How the script is tried, once it is written."""

    device: Annotated[
        str | None,
        Parameter(help="Device the script uses, cpu, cuda:0, npu:0; by default the recorded one."),
    ] = None
    dtype: Annotated[
        str | None,
        Parameter(
            help="Floating type the script uses, float32, float64; by default the recorded ones."
        ),
    ] = None
    level: Annotated[
        Literal["kernel", "api"],
        Parameter(help="The operator alone, or the user's function with its backward pass."),
    ] = "kernel"
    values: Annotated[
        Literal["real", "synthetic"],
        Parameter(
            help="Recorded values, or others of equal statistics, so that no data leaves the house."
        ),
    ] = "real"
    repeat: Annotated[
        int | None,
        Parameter(
            help="How often the call is made; a failure that comes and goes is flaky [3, a call "
            "that hangs: 1]."
        ),
    ] = None
    imports: Annotated[
        tuple[str, ...],
        Parameter(
            name="--import",
            help="Module, .py file or shared library that registers the operator; may be given "
            "again.",
        ),
    ] = ()
    allowed: Allowed = ()
    timeout: Annotated[float, Parameter(help="Seconds the trial may take.")] = 300.0
    python: Python = None
    operators: Operators = None


Trial = Annotated[TrialOptions, Parameter(name="*")]
AS_RECORDED = TrialOptions()


def repro(
    run: str,
    call: str | None = None,
    /,
    *,
    output: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"], help="The folder to write; one that exists gets a sibling."
        ),
    ] = Path("case"),
    json: Json = False,
    trial: Trial = AS_RECORDED,
) -> int:
    """Cut one operator call out into a folder with a script that stands alone, and try it.

    Exit code 0: the script ran and nothing failed, 1: the failure shows (every time, or now and
    then), 2: the call cannot
    be made again, 125: it cannot be tried here.

    Parameters
    ----------
    run
        A run, or any known dump; for an AI Core error a case of opscope aicore, its -o folder, or
        the logs.
    call
        A call, [rN/][sN/]name or #index; without a step the first finding's, else the first. None
        given: that of the first finding. Of several AI Core errors one, by number.
    """
    from opscope.cli.aicore_case import is_aicore, repro_aicore

    positive(repeat=trial.repeat, timeout=trial.timeout)
    interpreter(trial.python)
    if is_aicore(run, call):
        return repro_aicore(
            run, call, output, repeat=trial.repeat or 1, timeout=trial.timeout, json=json
        )
    with knowing_file(trial.operators):
        return _repro_call(run, call, output, json=json, trial=trial)


def _repro_call(
    run: str, call: str | None, output: Path, *, json: bool, trial: TrialOptions
) -> int:
    from opscope.formats.registry import open_run
    from opscope.repro import execute, read_case, save
    from opscope.repro.issue import write_issue
    from opscope.repro.privacy import without_data
    from opscope.repro.write import cut, free_folder

    opened = open_run(run)
    try:
        chosen = first_found(opened) if call is None else chosen_call(opened, call)
    except UsageError:
        completeness(opened)  # the call may be in what could not be read
        raise
    if chosen.note is not None:
        note(f"{chosen.call.name}: {chosen.note}")
    imports = tuple(map(lasting, trial.imports))
    folder = free_folder(output)
    if chosen.call.level == "graph":
        return _repro_graph(opened, chosen.call, folder, imports=imports, json=json, trial=trial)
    material = cut(
        opened,
        chosen.call,
        device=trial.device,
        dtype=trial.dtype,
        imports=imports,
        level=trial.level,
    )
    written = save(without_data(material) if trial.values == "synthetic" else material, folder)
    if folder != output:
        note(f"{output} exists; written to {folder}")
    case = read_case(folder)
    repeat = trial.repeat or (1 if case.failure.kind == "hang" else 3)
    outcome = execute(
        folder,
        repeat=repeat,
        timeout=trial.timeout,
        imports=imports,
        allowed=trial.allowed,
        python=interpreter(trial.python),
    )
    write_issue(folder, case, outcome)
    done = msgspec.structs.replace(written, outcome=outcome)
    if json:
        print_json(_document(run, done, outcome, complete=not opened.problems))
    else:
        _print(folder, outcome, python=trial.python or "python", allowed=trial.allowed)
        elsewhere = (
            recorded_by(opened.info.command)
            if outcome.status == "cannot-try" and trial.python is None
            else None
        )
        if elsewhere is not None:
            note(
                "the run was recorded by another interpreter; give it with --python "
                f"{shlex.quote(elsewhere)}"
            )
    return outcome.exit_code or completeness(opened)


def _repro_graph(
    run: Run, call: Call, folder: Path, *, imports: Sequence[str], json: bool, trial: TrialOptions
) -> int:
    """The part of a graph that a compiler makes wrongly."""
    from opscope.repro import execute, save
    from opscope.repro.graph import part_of

    if trial.device or trial.dtype or trial.level != "kernel" or trial.values != "real":
        raise UsageError(
            f"{call.name} is a graph: --device, --dtype, --level and --values are for operators"
        )
    written = save(part_of(run, call), folder)
    outcome = execute(
        folder,
        repeat=trial.repeat or 1,
        timeout=trial.timeout,
        imports=imports,
        python=interpreter(trial.python),
    )
    done = msgspec.structs.replace(written, outcome=outcome)
    if json:
        print_json(_document(run.info.path, done, outcome, complete=not run.problems))
    else:
        _print(folder, outcome, python=trial.python or "python", hint="or --code, --repeat 10")
    return outcome.exit_code or completeness(run)


def _document(run: str, done: Repro, outcome: Outcome, *, complete: bool) -> Document:
    return Document(
        verb="repro",
        runs=(run,),
        verdict="found" if outcome.exit_code == 1 else "clean",
        complete=complete,
        summary={**msgspec.structs.asdict(done), "word": WORDS[outcome.status]},
    )


def _print(
    folder: Path,
    outcome: Outcome,
    *,
    python: str,
    allowed: Sequence[str] = (),
    hint: str = "or --dtype float64, --device cpu, --repeat 10",
) -> None:
    from opscope.report.console import make_console, print_lines
    from opscope.report.trial import next_lines, trial_lines, verdict_lines

    console = make_console()
    counted = f" {outcome.shown}/{outcome.tried}" if outcome.tried > 1 else ""
    word, style, width = (
        f"{WORDS[outcome.status]}{counted}",
        STYLES.get(outcome.status, "bold"),
        console.width,
    )
    command = shlex.join(
        [
            python,
            str(folder / "repro.py"),
            *(word for pattern in allowed for word in ("--allow", pattern)),
        ]
    )
    print_lines(console, trial_lines(outcome.lines[:-1], width=width))
    print_lines(console, verdict_lines(word, outcome.reason, style=style, width=width))
    print_lines(console, next_lines(command, hint, width=width))
