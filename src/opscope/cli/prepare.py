# SPDX-License-Identifier: Apache-2.0
"""`opscope prepare`: collection settings of other tools, written for a purpose or checked."""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import Json
from opscope.cli.printing import print_json, say
from opscope.errors import UsageError
from opscope.formats.settings.kinds import (
    BUILTIN,
    Kind,
    Prepared,
    Request,
    find_kind,
    kind_of_file,
    read_purpose,
)
from opscope.formats.settings.parse import parse_settings
from opscope.formats.settings.problem import Problem, errors
from opscope.run.finding import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

FOUND = 1
LARGEST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SettingsOptions:
    """What the settings are to do, in words that mean the same for every kind."""

    path: Annotated[str | None, Parameter(help="Folder the tool dumps to.")] = None
    step: Annotated[
        int | None,
        Parameter(help="The step in question, counted from 0; the one before it comes along."),
    ] = None
    steps: Annotated[str | None, Parameter(help="Steps to dump, 0|5-8.")] = None
    ops: Annotated[
        tuple[str, ...], Parameter(name="--ops", help="An operator to dump; may be given again.")
    ] = ()
    io: Annotated[Literal["input", "output", "both"] | None, Parameter(help="Tensors to dump.")] = (
        None
    )
    data: Annotated[
        Literal["tensor", "statistic", "full"] | None,
        Parameter(help="Whole tensors, statistics, or both."),
    ] = None
    backend: Annotated[str | None, Parameter(help="mindspore: CPU, GPU or Ascend [Ascend].")] = None
    level: Annotated[
        str | None, Parameter(help="mindspore: compile level O0, O1, O2, or ms_backend, GE.")
    ] = None
    pynative: Annotated[bool, Parameter(help="mindspore: the program runs in PyNative mode.")] = (
        False
    )
    acl: Annotated[bool, Parameter(help="mindspore: dump through ACL (MS_ACL_DUMP_CFG_PATH).")] = (
        False
    )
    sink: Annotated[
        bool | None,
        Parameter(help="mindspore: the program uses dataset_sink_mode.", negative="--no-sink"),
    ] = None
    exception_dump: Annotated[
        Literal["0", "1", "2"] | None, Parameter(help="mindspore: ascend_config's exception_dump.")
    ] = None
    framework: Annotated[
        str | None, Parameter(help="tensorflow: estimator or session; aicore: the framework.")
    ] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(name="--set", help="KEY=VALUE of the tool's own file; may be given again."),
    ] = ()


Settings = Annotated[SettingsOptions, Parameter(name="*")]
AS_USUAL = SettingsOptions()


def prepare(
    kind: str | None = None,
    purpose: str | None = None,
    /,
    *,
    out: Annotated[
        Path,
        Parameter(
            name=("-o", "--out"), help="Folder the settings files are written to [the current one]."
        ),
    ] = Path(),
    verify: Annotated[Path | None, Parameter(help="Check a file somebody wrote instead.")] = None,
    json: Json = False,
    settings: Settings = AS_USUAL,
) -> int:
    """Write the collection settings another tool needs, or check a file of it (--verify).

    Kinds: mindspore, acl, atc, tensorflow, msprobe, aicore. On a terminal what is left out is asked
    for. Exit code 0: written, or nothing wrong; 1: --verify found an error; 2: settings that
    exclude each other.

    Parameters
    ----------
    kind
        Whose settings; of a file to check it is read off the file, on a terminal it is asked for.
    purpose
        What for: nan, compare, statistics, overflow, aicore, …, or "nan at step 10".
    """
    if kind is None:
        kind = _kind_meant(verify)
    chosen = find_kind(kind)
    request = _request(chosen, purpose, settings, asking=not json and verify is None)
    if verify is not None:
        return _verify(chosen, verify, request, json=json)
    prepared = chosen.prepare(request)
    wrong = errors(prepared.problems)
    if wrong:
        raise UsageError("; ".join(problem.line() for problem in wrong))
    placed = _in_folder(prepared, out.absolute())
    written = _write(placed, out)
    if json:
        print_json(_document(chosen.name, placed, written))
    else:
        _print(placed, written)
    return 0


def _kind_meant(verify: Path | None) -> str:
    """The kind that was not named: of the file to check, else as the user says on the terminal."""
    if verify is not None:
        try:
            return kind_of_file(_text(verify))
        except UsageError as error:
            raise UsageError(
                str(error) if str(error).startswith(str(verify)) else f"{verify}: {error}"
            ) from error
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"prepare: whose settings? there are {', '.join(BUILTIN)}")
    return _answer({name: find_kind(name).about for name in BUILTIN}, "whose settings?")


def _request(kind: Kind, phrase: str | None, options: SettingsOptions, *, asking: bool) -> Request:
    if (
        phrase is None
        and asking
        and len(kind.purposes) > 1
        and sys.stdin.isatty()
        and sys.stderr.isatty()
    ):
        phrase = _answer(kind.purposes, "what for? a number, or in words:")
    purpose, step = read_purpose(phrase) if phrase else (None, None)
    return Request(
        purpose=purpose,
        path=options.path,
        step=options.step if options.step is not None else step,
        steps=options.steps,
        operators=options.ops,
        io=options.io,
        data=options.data,
        backend=options.backend,
        level=options.level,
        pynative=options.pynative,
        acl=options.acl,
        sink=options.sink,
        exception_dump=options.exception_dump,
        framework=options.framework,
        settings=dict(map(_assignment, options.set)),
        environment=dict(os.environ),
    )


def _assignment(text: str) -> tuple[str, Any]:
    """KEY=VALUE; the value is read as JSON where it is JSON, else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text!r}: KEY=VALUE was expected")
    try:
        return key, json_module.loads(value)
    except ValueError:
        return key, value


def _answer(choices: Mapping[str, str], question: str) -> str:
    """One of these words, or another text, asked for on the terminal; the first where nothing is
    said.
    """
    words = list(choices)
    for number, word in enumerate(words, start=1):
        print(f"  {number}  {word:<12} {choices[word]}", file=sys.stderr)
    print(f"{question} [1] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer.isdigit() and 1 <= int(answer) <= len(words):
        return words[int(answer) - 1]
    return answer or words[0]


def _verify(kind: Kind, path: Path, request: Request, *, json: bool) -> int:
    if kind.verify is None:
        raise UsageError(f"prepare {kind.name} has no file of its own to check")
    document, twice = _read(path, kind.syntax)
    problems = (*twice, *kind.verify(document, request))
    if json:
        answer = Document(
            verb="prepare",
            runs=(str(path),),
            verdict="found" if errors(problems) else "clean",
            summary={"kind": kind.name, "problems": _plain(problems)},
        )
        print_json(answer)
    elif problems:
        from opscope.report.console import make_console, print_lines
        from opscope.report.settings import problem_lines

        console = make_console()
        print_lines(console, problem_lines(problems, width=console.width))
    else:
        say(f"{path}: nothing wrong")
    return FOUND if errors(problems) else 0


def _text(path: Path) -> str:
    """The text of a settings file; UsageError where it is none."""
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: larger than {LARGEST >> 20} MiB; not a settings file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}; --verify needs a file that can be read"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _read(path: Path, syntax: str) -> tuple[Any, list[Problem]]:
    """A settings file, parsed, and remarks on its text; UsageError with the line where it is not
    what it should be.
    """
    text = _text(path)
    if syntax != "json":
        return text, []
    try:
        return parse_settings(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _in_folder(prepared: Prepared, folder: Path) -> Prepared:
    """The same with {FOLDER} replaced by where the files are written."""
    folder_name = str(folder)
    replace = msgspec.structs.replace
    return replace(
        prepared,
        files=tuple(
            replace(file, text=file.text.replace("{FOLDER}", folder_name))
            for file in prepared.files
        ),
        environment=tuple(
            replace(item, value=item.value.replace("{FOLDER}", folder_name))
            for item in prepared.environment
        ),
        snippets=tuple(
            replace(item, text=item.text.replace("{FOLDER}", folder_name))
            for item in prepared.snippets
        ),
    )


def _write(prepared: Prepared, out: Path) -> tuple[str, ...]:
    """Write the files; one that exists and says something else is never overwritten."""
    written = []
    for file in prepared.files:
        path = out / file.name
        if path.exists() and path.read_bytes() != file.text.encode():
            raise UsageError(f"{path} exists and says something else; give another folder with -o")
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        written.append(str(path.absolute()))
    return tuple(written)


def _document(kind: str, prepared: Prepared, written: Sequence[str]) -> Document:
    summary = {
        "kind": kind,
        "files": list(written),
        "environment": [msgspec.to_builtins(item) for item in prepared.environment],
        "snippets": [msgspec.to_builtins(item) for item in prepared.snippets],
        "advice": list(prepared.advice),
        "result": prepared.result,
        "problems": _plain(prepared.problems),
    }
    return Document(verb="prepare", summary=summary)


def _plain(problems: Sequence[Problem]) -> list[Any]:
    return [msgspec.to_builtins(problem) for problem in problems]


def _print(prepared: Prepared, written: Sequence[str]) -> None:
    from opscope.report.console import make_console, print_lines
    from opscope.report.settings import prepared_lines

    if not written and not prepared.environment and not prepared.snippets:
        note("nothing to write")
    console = make_console()
    lines: Iterator[Any] = prepared_lines(prepared, written, width=console.width)
    print_lines(console, lines)
