# SPDX-License-Identifier: Apache-2.0
"""`opscope repro` for AI Core errors: a case of opscope aicore, its folder, or a collection of
which the case is written first.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.cli.failing import note
from opscope.cli.printing import print_json
from opscope.errors import UsageError
from opscope.run.finding import Document

if TYPE_CHECKING:
    from opscope.ascend.analysis import Analysis
    from opscope.repro import Outcome

_STYLES = {"reproduced": "bold red", "not-reproduced": "bold green"}


def is_aicore(given: str, call: str | None) -> bool:
    """Whether a place is a case of opscope aicore, the folder of one, or process logs; a run with
    logs is where no call is named.
    """
    from opscope.ascend.case import is_case
    from opscope.errors import OpscopeError
    from opscope.formats.registry import find_format
    from opscope.record.ascend import has_logs

    path = Path(given)
    if is_case(path) or (path / "document.json").is_file():
        return True
    if not path.exists():
        return False
    try:
        known = find_format(path).name
    except OpscopeError:
        known = None
    # dumps of a device name no calls that could be made again, but the logs beside them may
    if known in (None, "cann"):
        from opscope.ascend.find import collect

        return bool(collect([path]).logs)
    return call is None and has_logs(path)


def repro_aicore(
    given: str, call: str | None, output: Path, *, repeat: int, timeout: float, json: bool
) -> int:
    """Try the case on the device through op_test_frame or acl, else by the CPU reference; the exit
    codes of opscope repro.
    """
    from opscope.repro import execute

    folder = _case(Path(given), call, output)
    outcome = execute(folder, repeat=repeat, timeout=timeout)
    if json:
        print_json(_document(given, folder, outcome))
    else:
        _print(given, folder, outcome)
    return outcome.exit_code


def _case(given: Path, call: str | None, output: Path) -> Path:
    """The folder of the case: the one given, the one of that name or number below an output, or a
    new one.
    """
    from opscope.ascend.case import is_case

    if is_case(given):
        return given
    written = (
        sorted(folder for folder in given.glob("case*") if is_case(folder))
        if (given / "document.json").is_file()
        else []
    )
    if written:
        return _chosen({_label(folder): folder for folder in written}, call, given)
    return _new(given, call, output)


def _label(folder: Path) -> str:
    return folder.name.removeprefix("case-") if folder.name != "case" else "1"


def _chosen(known: dict[str, Path], call: str | None, given: Path) -> Path:
    if call is None and len(known) == 1:
        return next(iter(known.values()))
    if call is None or call.lstrip("#") not in known:
        raise UsageError(
            f"{given}: which error? opscope repro {given} N, N one of {', '.join(known)}"
        )
    return known[call.lstrip("#")]


def _new(given: Path, call: str | None, output: Path) -> Path:
    from opscope.ascend.analysis import analyse_all
    from opscope.ascend.case import write
    from opscope.ascend.find import collect
    from opscope.ascend.log import read_logs
    from opscope.cli.aicore import joined
    from opscope.repro.write import free_folder

    collected = collect([given])
    analyses = joined(analyse_all(read_logs(collected.logs), collected), [given])
    if not analyses:
        raise UsageError(f"{given}: no known dump or run, and no AI Core error in its logs")
    one = _error(analyses, call, given)
    folder = free_folder(output)
    if folder != output:
        note(f"{output} exists; written to {folder}")
    for text in write(one, folder).lacks:
        note(f"{folder}: lacks {text}")
    return folder


def _error(analyses: tuple[Analysis, ...], call: str | None, given: Path) -> Analysis:
    """The error of that number, node, kernel or operator; the first without one."""
    if call is None:
        if len(analyses) > 1:
            note(
                f"{given}: {len(analyses)} errors; the first is taken, opscope repro {given} "
                "N takes another"
            )
        return analyses[0]
    if call.lstrip("#").isdecimal() and 1 <= int(call.lstrip("#")) <= len(analyses):
        return analyses[int(call.lstrip("#")) - 1]
    named = (
        one
        for one in analyses
        if call in (one.name, one.operator, one.fault.kernel, one.fault.dev_func)
    )
    error = next(named, None)
    if error is None:
        known = dict.fromkeys(str(one.name or one.fault.kernel or one.operator) for one in analyses)
        raise UsageError(
            f"{given}: no AI Core error of {call!r}; there are {', '.join(list(known)[:8])}"
        )
    return error


def _document(given: str, folder: Path, outcome: Outcome) -> Document:
    summary = {
        "directory": str(folder),
        "status": outcome.status,
        "device": outcome.device,
        "reason": outcome.reason,
        "shown": outcome.shown,
        "tried": outcome.tried,
    }
    verdict = "found" if outcome.exit_code == 1 else "clean"
    done: dict[str, object] = {**summary, "warnings": []}
    return Document(
        verb="repro",
        runs=(given,),
        verdict=verdict,
        complete=outcome.exit_code != 125,
        summary=done,
    )


def _print(given: str, folder: Path, outcome: Outcome) -> None:
    from opscope.report.console import folded, line, make_console, print_lines

    console = make_console()
    words = {
        "reproduced": "reproduced",
        "not-reproduced": "not reproduced",
        "cannot-try": "cannot be tried here",
    }
    for text in outcome.lines[:1]:
        console.print(line(text))
    where = {"npu": " on the device", "cpu": " by the CPU reference"}.get(outcome.device or "", "")
    counted = f" {outcome.shown}/{outcome.tried}" if outcome.tried > 1 else ""
    said = words.get(outcome.status, "no verdict") + (
        f"{counted}{where}" if outcome.exit_code != 125 else ""
    )
    print_lines(
        console,
        folded(
            f"{said}  ",
            outcome.reason,
            width=console.width,
            style=_STYLES.get(outcome.status, "bold"),
        ),
    )
    command = f"python3 {shlex.quote(str(folder / 'repro.py'))}"
    if outcome.device == "npu" and outcome.exit_code != 125:
        logs = (
            "…"
            if Path(given) == folder or (Path(given) / "document.json").is_file()
            else shlex.quote(given)
        )
        print_lines(
            console,
            folded(
                "next  ",
                f"opscope aicore {logs} --case-result {outcome.status}",
                width=console.width,
            ),
        )
    else:
        text = (
            f"{command} where CANN is, then: opscope aicore … --case-result "
            "reproduced|not-reproduced"
        )
        print_lines(console, folded("next  ", text, width=console.width))
