# SPDX-License-Identifier: Apache-2.0
"""`opscope aicore`: an AI Core error explained from what was collected, on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import Json
from opscope.cli.printing import INCOMPLETE, print_json
from opscope.errors import UsageError
from opscope.run.finding import Document

if TYPE_CHECKING:
    from opscope.ascend.analysis import Analysis, WrittenCase
    from opscope.ascend.codes import Meaning
    from opscope.ascend.unpacked import Unpacked


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things lie that are not found by themselves, and numbers to explain."""

    graphs: Annotated[
        Path | None,
        Parameter(help="Graph dumps (ge_proto, ge_onnx, JSON), in place of those found."),
    ] = None
    kernel_meta: Annotated[
        Path | None, Parameter(help="Kernels' .json and .o, in place of those found.")
    ] = None
    dump: Annotated[Path | None, Parameter(help="Exception dumps, in place of those found.")] = None
    case_result: Annotated[
        str | None,
        Parameter(
            help="How the case ended: reproduced, not-reproduced, or the folder of its logs."
        ),
    ] = None
    run_case: Annotated[
        bool,
        Parameter(
            help="Run the cases written with -o; on the device their outcome completes the verdict."
        ),
    ] = False
    status: Annotated[
        str | None,
        Parameter(
            help="Explain an overflow status (272, 0x110; several by commas) and nothing else."
        ),
    ] = None
    code: Annotated[
        str | None, Parameter(help="Explain codes: 0x800000, 507015, EI0006, 95,330 (950), hccl:9.")
    ] = None


_EACH = 20  # errors up to which each gets a case of its own; of more, each different call one

Where = Annotated[Places, Parameter(name="*")]
NOWHERE = Places()


def aicore(
    *paths: Annotated[str, Parameter(allow_leading_hyphen=True)],  # "-" is stdin
    where: Where = NOWHERE,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="Folder for info.txt, info.html and the cases; one that exists gets a sibling.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Explain AI Core errors from logs, graphs, kernels and dumps: what failed where, by which
    cause, and what to do.

    Exit code 0: no AI Core error, 1: one or more, 2: nothing here can be read, 3: no error, but
    files could not be read.

    Parameters
    ----------
    paths
        Files, folders and archives: process logs, an asys collection, a run, core files; - reads
        pasted text from stdin.
    """
    unknown = next((path for path in paths if path.startswith("-") and path != "-"), None)
    if unknown is not None:
        raise UsageError(f"unknown option: {unknown}; see opscope aicore --help")
    if where.status is not None or where.code is not None:
        return _explain(where, json=json)
    if not paths:
        raise UsageError(
            "no logs given; write: opscope aicore FOLDER, or opscope aicore - and paste the "
            "EZ9999 block"
        )
    from opscope.ascend.unpacked import unpacked

    with unpacked(
        Path(path)
        for path in paths
        if path != "-" and not Path(path).is_fifo() and Path(path).exists()
    ) as archives:
        return _told(paths, where, output, archives, json=json)


def _told(
    paths: tuple[str, ...], where: Places, output: Path | None, archives: Unpacked, *, json: bool
) -> int:
    """Analyse, write what was asked for, print; the exit code."""
    analyses, conclude = _analysed(paths, where, archives)
    folder = _folder(output) if output is not None and analyses else None
    if folder is not None:
        analyses = tuple(_cases(analyses, folder, run=where.run_case))
    document: Document = archives.named(conclude(analyses))
    if folder is not None:
        _reports(document, folder)
    if json:
        print_json(document)
    else:
        from opscope.report.aicore_text import print_aicore

        print_aicore(document, written=None if folder is None else str(folder))
    if document.findings:
        return 1
    return 0 if document.complete else INCOMPLETE


def _analysed(
    paths: tuple[str, ...], where: Places, archives: Unpacked
) -> tuple[tuple[Analysis, ...], Callable[[tuple[Analysis, ...]], Document]]:
    """The errors, and what makes the document of them."""
    from opscope.ascend.analysis import analyse_all
    from opscope.ascend.explain import document
    from opscope.ascend.find import collect
    from opscope.ascend.log import read_logs

    piped = [Path(path) for path in paths if path != "-" and Path(path).is_fifo()]  # <(command)
    places = [Path(path) for path in paths if path != "-" and Path(path) not in piped]
    places += archives.folders.values()
    collected = collect(
        places, graphs_at=where.graphs, kernels_at=where.kernel_meta, dumps_at=where.dump
    )
    collected = msgspec.structs.replace(
        collected, problems=(*collected.problems, *archives.problems)
    )
    reader = read_logs(collected.logs, named=archives.named)
    read = len(collected.logs)
    for path in piped:
        with path.open("rb") as stream:
            reader.read(stream, str(path))
        read += 1
    if "-" in paths:
        if sys.stdin.isatty():
            note("paste the error, then press Ctrl-D")
        reader.read(sys.stdin.buffer, "<stdin>")
        read += 1
    if not read and not collected.cores:
        raise UsageError(
            f"{', '.join(paths)}: no log here; process logs lie in $HOME/ascend/log, or where "
            "ASCEND_PROCESS_LOG_PATH says"
        )
    analyses = analyse_all(reader, collected, case_result=where.case_result)
    analyses = joined(analyses, places)
    return analyses, lambda done: document(
        done, collection=collected, read=read, codes=reader.codes, runs=paths
    )


def joined(analyses: tuple[Analysis, ...], places: Iterable[Path]) -> tuple[Analysis, ...]:
    """Errors with the recorded calls that they are of, as far as runs of opscope are among the
    places.
    """
    from opscope.errors import OpscopeError
    from opscope.formats.registry import open_run
    from opscope.scan.kernel_calls import with_calls

    for path in filter(_is_run, places if analyses else ()):
        try:
            analyses = with_calls(analyses, open_run(path))
        except OpscopeError as error:  # noqa: PERF203 - the logs are explained without it
            note(f"{path}: its calls are not joined with the error: {error}")
    return analyses


def _is_run(path: Path) -> bool:
    from opscope.formats.native import detect

    return path.is_dir() and detect(path)


def _folder(output: Path) -> Path:
    from opscope.repro.write import free_folder

    folder = free_folder(output)
    if folder != output:
        note(f"{output} exists; written to {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _cases(analyses: tuple[Analysis, ...], folder: Path, *, run: bool) -> Iterator[Analysis]:
    """Write the case of each error, and try it where that was asked for."""
    from opscope.ascend.case import call_of, tried, write

    written: dict[object, tuple[int, WrittenCase]] = {}
    for number, one in enumerate(analyses, 1):
        call = call_of(one)
        if len(analyses) > _EACH and call in written:
            yield msgspec.structs.replace(one, case=written[call][1])
            continue
        try:
            case = write(one, folder / (f"case-{number}" if len(analyses) > 1 else "case"))
        except UsageError as error:
            note(f"no case for {one.name or one.fault.kernel or 'this error'}: {error}")
            yield one
            continue
        for text in case.lacks:
            note(f"{case.folder}: lacks {text}")
        done = msgspec.structs.replace(one, case=case)
        done = tried(done) if run else done
        written[call] = number, done.case or case
        yield done


def _reports(document: Document, folder: Path) -> None:
    """info.txt of each error, info.html and document.json."""
    from opscope.report.aicore_text import info_text
    from opscope.report.json import json_text
    from opscope.view.aicore import aicore_page

    many = len(document.findings) > 1
    for number, finding in enumerate(document.findings, 1):
        name = f"info-{number}.txt" if many else "info.txt"
        (folder / name).write_text(info_text(finding), encoding="utf-8", errors="backslashreplace")
    (folder / "info.html").write_text(
        aicore_page(document), encoding="utf-8", errors="backslashreplace"
    )
    (folder / "document.json").write_text(json_text(document) + "\n", encoding="utf-8")


def _explain(where: Places, *, json: bool) -> int:
    from opscope.ascend.codes import explain_code, explain_status

    meanings: tuple[Meaning, ...] = ()
    if where.status is not None:
        meanings += tuple(
            one
            for text in where.status.replace(",", " ").split() or [""]
            for one in explain_status(_number(text))
        )
    if where.code is not None:
        meanings += explain_code(where.code)
    rows = [
        {"code": one.code, "family": one.family, "name": one.name, "text": one.text}
        for one in meanings
    ]
    if json:
        print_json(Document(verb="aicore", summary={"meanings": rows, "warnings": []}))
        return 0
    from opscope.report.console import folded, make_console, print_lines

    console = make_console()
    for one in meanings:
        print_lines(
            console,
            folded(
                f"{one.code}  ",
                f"{one.name} ({one.family}): {one.text}",
                width=console.width,
                style="bold",
            ),
        )
    return 0


def _number(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise UsageError(f"--status {text}: write a number, 272 or 0x110") from None
    if value < 0:
        raise UsageError(f"--status {text}: a status is not negative")
    return value
