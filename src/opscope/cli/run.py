# SPDX-License-Identifier: Apache-2.0
"""`opscope run`: a command under recording, and the verdict at its end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note, report_bug
from opscope.cli.options import knowing_file
from opscope.cli.printing import tell_page
from opscope.cli.status import status_line
from opscope.errors import OpscopeError, UsageError
from opscope.formats.settings.mindspore import VARIABLE
from opscope.record.config import (
    OPTIONS,
    Option,
    config_from,
    read_settings,
    read_text,
    read_words,
    split_command,
)
from opscope.record.launch import LaunchResult, launch
from opscope.run.finding import Document
from opscope.run.selection import Selection

if TYPE_CHECKING:
    from opscope.formats.settings.recording import Recording
    from opscope.run.selection import Pattern

_LISTED = 20  # failures named on stderr


def _field(option: Option) -> tuple[str, Any, Any]:
    kind: Any = bool | None if option.takes is None else str | None
    negative = [f"--no-{option.word}"] if option.takes is None else []
    parameter = Parameter(name=list(option.flags), help=option.help, negative=negative)
    return option.field, Annotated[kind, parameter], field(default=None)


# One table of options serves the command line, OPSCOPE and the configuration file.
RunOptions = make_dataclass(
    "RunOptions", [_field(option) for option in OPTIONS], kw_only=True, frozen=True
)
# where the annotations are to be read; make_dataclass leaves "types"
RunOptions.__module__ = __name__
NO_OPTIONS = RunOptions()


def with_command_apart(words: Sequence[str]) -> list[str]:
    """`run` and its words with `--` before the command, so that no option of the command is taken
    for one of ours.
    """
    options, command = split_command(words[1:], more=("--json-file", "--beside"))
    return [words[0], *options, "--", *command] if command else [words[0], *options]


def run(
    *command: str,
    options: Annotated[RunOptions, Parameter(name="*")] = NO_OPTIONS,  # type: ignore[valid-type]
    json_file: Annotated[
        Path | None, Parameter(help="Write the JSON document there; stdout is the command's.")
    ] = None,
    beside: Annotated[
        Path | None,
        Parameter(
            help="Set the verdict beside that of this earlier run; where there is none, first "
            "record it without --substitute."
        ),
    ] = None,
    status: Annotated[
        bool,
        Parameter(negative="--no-status", help="How far it is, on the last row of a terminal."),
    ] = True,
) -> int:
    """Run any command under recording, its children and ranks included, and say what was found.

    The exit code is the command's own. The options may also stand in the environment variable
    OPSCOPE.

    Parameters
    ----------
    command
        The command and its arguments, after --.
    """
    words = {name: value for name, value in asdict(options).items() if value is not None}
    given = _with_dump_settings({**read_words(os.environ.get("OPSCOPE", "")), **words})
    config = config_from(given)
    settings = _settings_of(str(given.get("config", "")))
    if beside is not None and not beside.exists():
        first = launch(
            msgspec.structs.replace(config, substitute=None, output=str(beside)), command
        )
        conclude(first, config.selection.ops)
    result = launch(config, command, beside=status_line if status else nullcontext)
    try:
        with knowing_file(None if config.operators is None else Path(config.operators)):
            document = conclude(result, config.selection.ops, earlier=beside)
        if config.layout is not None and document is not None and document.complete:
            _write_layout(result.run, config.layout, settings)
        if json_file is not None and document is not None:
            from opscope.report.json import json_text

            json_file.write_text(json_text(document) + "\n", encoding="utf-8")
    except (OpscopeError, OSError) as error:
        note(f"{error}; the run is in {result.run}")
    except KeyboardInterrupt:
        note(f"interrupted; see opscope scan {result.run}")
    except Exception as error:  # noqa: BLE001 - the command's exit code is what counts, whatever happens to its verdict
        report_bug(error)
    return result.exit_code


def _with_dump_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The options with the settings that MindSpore's own variable names, where no --config names
    others.
    """
    path = os.environ.get(VARIABLE)
    if "config" in given or not path:
        return given
    try:
        read_settings(Path(path), read_text(Path(path)))
    except UsageError as error:
        note(f"{VARIABLE}: {error}; recorded without it")
        return given
    note(f"{VARIABLE} is set: recorded as {path} says; --config overrules it")
    return {**given, "config": path}


def _settings_of(path: str) -> Recording | None:
    """What another tool's settings file asks for, its notes said; None for our own options."""
    text = read_text(Path(path)) if path else ""
    if not text.lstrip().startswith("{"):
        return None
    recording = read_settings(Path(path), text)
    for remark in recording.notes:
        note(f"{path}: {remark}")
    return recording


def _write_layout(run: Path | None, layout: str, settings: Recording | None) -> None:
    """Write the run in another tool's tree, to the path its settings name, else beside the run."""
    if run is None:
        return
    from opscope.formats.registry import open_run
    from opscope.formats.settings.recording import Export
    from opscope.formats.tool_tree import write_tool_tree
    from opscope.repro.write import free_folder

    export = settings.export if settings is not None else Export(data="full")
    wanted = Path(export.path) if export.path else run.with_name(f"{run.name}-{layout}")
    out = free_folder(wanted)
    if out != wanted:
        note(f"{wanted} exists; the {layout} tree goes to {out}")
    written = write_tool_tree(open_run(run), layout, export, out)
    for failure in written.failures[:_LISTED]:
        note(failure)
    note(f"{written.tensors} tensors written to {out} as {layout} lays them out")


def conclude(
    result: LaunchResult, ops: Pattern | None = None, *, earlier: Path | None = None
) -> Document | None:
    """Scan what was recorded, draw the verdict on stderr, and give back the document; None when
    there is no run.

    The verdict stands beside that of an earlier run where one is given.
    """
    if result.run is None:
        return None
    facts = {
        "exit_code": result.exit_code,
        "seconds": round(result.seconds, 3),
        "processes": result.processes,
    }
    if result.nothing_recorded is not None:
        remarks = [
            result.nothing_recorded,
            *(text for text in result.notes if text not in result.nothing_recorded),
        ]
        for remark in remarks:
            note(remark)
        summary = {"warnings": remarks, **facts}
        return Document(verb="run", runs=(str(result.run),), complete=False, summary=summary)
    from opscope.formats.registry import open_run
    from opscope.report.terminal import print_verdict
    from opscope.run.unmatched import unmatched
    from opscope.scan.api import scan

    run = open_run(result.run)
    scanned = scan(run)
    warnings = [
        *scanned.summary.get("warnings", ()),
        *unmatched(run, Selection(ops=ops)),
        *result.notes,
    ]
    summary = {**scanned.summary, **facts, "warnings": warnings}
    if earlier is not None:
        from opscope.scan.summary import beside_earlier

        other = open_run(earlier)
        summary["beside"] = beside_earlier(scanned, scan(other), other)
    document = msgspec.structs.replace(
        scanned, verb="run", runs=(str(result.run),), summary=summary
    )
    print_verdict(document, stderr=True)
    tell_page(str(result.run))
    return document
