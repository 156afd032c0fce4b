# SPDX-License-Identifier: Apache-2.0
"""`opscope show`: calls of a run, from a line of code to its operators to their data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.finding_calls import calls_of_line, chosen_call
from opscope.cli.options import EVERYTHING, Json, Operators, Selected, knowing_file, positive
from opscope.cli.printing import completeness, write_pieces
from opscope.errors import MissingValueError, UsageError
from opscope.version import VERSION

DRAWN = (".svg", ".png")

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor
    from opscope.run.selection import Selection


def show(  # noqa: PLR0913 - one for each option
    run: str,
    call: str | None = None,
    /,
    *,
    source: Annotated[
        str | None,
        Parameter(help="Only calls that this line ran, FILE:LINE; any frame of the stack."),
    ] = None,
    values: Annotated[bool, Parameter(help="Also print elements, where they were kept.")] = False,
    graphs: Annotated[
        bool,
        Parameter(
            help="The graphs that torch.compile made: how often they ran, why they end, and why "
            "they were compiled again."
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        Parameter(
            help="Also draw the call into this file, .svg or .png: its tensors over the steps, "
            "and how values that were kept are spread."
        ),
    ] = None,
    limit: Annotated[
        int | None, Parameter(help="At most so many calls, the first; all without it.")
    ] = None,
    json: Json = False,
    operators: Operators = None,
    selection: Selected = EVERYTHING,
) -> int:
    """List the calls of a run with their tensors, or print one call with all that is known about
    it.

    Parameters
    ----------
    run
        A run, or any known dump.
    call
        A call, [rN/][sN/]name or #index; without a step the first finding's, else the first.
    """
    from opscope.formats.registry import open_run
    from opscope.run.query import calls

    positive(limit=limit)
    if plot is not None and (call is None or plot.suffix.lower() not in DRAWN):
        raise UsageError(f"--plot {plot}: name one CALL, and a file that ends in .svg or .png")
    opened = open_run(run)
    if graphs:
        return _show_graphs(run, opened, json=json)
    wanted = with_levels_of(opened, selection.selection())
    if call is not None:
        with knowing_file(operators):
            chosen = chosen_call(opened, call)
        if chosen.note is not None:
            note(f"{chosen.call.name}: {chosen.note}")
        shown: Iterable[Call] = [chosen.call]
        if plot is not None:
            _draw(opened, chosen.call, plot)
    elif source is not None:
        shown = calls_of_line(opened, source, wanted)
    else:
        shown = Again(lambda: calls(opened, wanted))
    if limit is not None:
        shown = Limited(shown, limit)
    if json:
        write_pieces(_document(run, opened, shown, wanted, values=values))
    elif call is not None:
        _print_page(opened, next(iter(shown)), values=values)
    else:
        _print_list(opened, shown, wanted, values=values)
    if isinstance(shown, Limited) and shown.more:
        note(f"there are more calls than --limit {limit}; the first {limit} are shown")
    return completeness(opened)


def _draw(run: Run, call: Call, wanted: Path) -> None:
    from opscope.view.all_calls import AllCalls
    from opscope.view.calls import call_documents
    from opscope.view.compare_files import free_file
    from opscope.view.figure import call_figure, picture_file
    from opscope.view.references import reference
    from opscope.view.sources import Sources

    call_id = (call.process, call.index)
    document = call_documents(AllCalls(run), [call_id], Sources())["calls"][reference(*call_id)]
    free = free_file(wanted)
    free.write_bytes(picture_file(call_figure(document), free))
    note(f"{call.name} drawn into {free}")


def _show_graphs(path: str, run: Run, *, json: bool) -> int:
    from opscope.report.console import make_console, print_lines
    from opscope.report.graphs import graph_lines, graph_rows
    from opscope.report.json import json_pieces

    rows = graph_rows(run)
    if json:
        head = {"opscope": VERSION, "verb": "show", "runs": [path], "complete": not run.problems}
        write_pieces(json_pieces(head, [("graphs", rows)]))
    elif rows:
        print_lines(make_console(), graph_lines(rows))
    else:
        note("the run holds no graph of torch.compile")
    return completeness(run)


class Again:
    """Calls that are read from the run anew each time they are gone through, so that no list of
    them is kept.
    """

    def __init__(self, read: Callable[[], Iterator[Call]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Call]:
        return self._read()


class Limited:
    """The first of some calls; more says whether there are others."""

    def __init__(self, source: Iterable[Call], limit: int) -> None:
        first = list(islice(source, limit + 1))
        self.more = len(first) > limit
        self._first = first[:limit]

    def __iter__(self) -> Iterator[Call]:
        return iter(self._first)


def with_levels_of(run: Run, wanted: Selection) -> Selection:
    """The selection; where the run has no call of the levels that are meant, all its levels are,
    which is said.
    """
    if wanted.levels is None:
        return wanted
    from opscope.run.query import columns

    there = {level for batch in columns(run, "calls", ("level",)) for level in batch["level"]}
    if not there or there & set(wanted.levels):
        return wanted
    note(
        f"the run holds no calls of level {' or '.join(wanted.levels)}; those of level "
        f"{' and '.join(sorted(there))} are listed"
    )
    return msgspec.structs.replace(wanted, levels=None)


def _print_list(run: Run, shown: Iterable[Call], wanted: Selection, *, values: bool) -> None:
    from opscope.report.calls import call_lines
    from opscope.report.console import make_console, print_lines
    from opscope.run.query import tensors_of
    from opscope.run.unmatched import unmatched

    console = make_console()
    folders = _shard_folders(run)
    ranks = len({process.rank for process in run.processes}) > 1
    here = Path.cwd()
    none = True
    for call in shown:
        none = False
        tensors = tensors_of(run, call, io=wanted.io)
        print_lines(console, call_lines(call, tensors, folders, ranks=ranks, here=here))
        if values:
            _print_values(run, tensors)
    if none:
        note("; ".join(["no call is selected", *unmatched(run, wanted)]))


def _shard_folders(run: Run) -> dict[int, str]:
    """Folders of the shards of each process, below a run of ours."""
    if run.info.format != "opscope":
        return {}
    return {
        process.process: f"processes/{process.directory}"
        for process in run.processes
        if process.directory
    }


def _print_page(run: Run, call: Call, *, values: bool) -> None:
    from opscope.report.calls import call_page
    from opscope.report.console import make_console, print_lines
    from opscope.run.query import tensors_of

    tensors = tensors_of(run, call)
    console = make_console()
    folders = _shard_folders(run)
    print_lines(console, call_page(call, tensors, folders, frames_of(run, call)))
    if values:
        _print_values(run, tensors)


def _print_values(run: Run, tensors: Iterable[Tensor]) -> None:
    from opscope.report.calls import WORD
    from opscope.report.console import line, make_console, print_lines
    from opscope.report.values import excerpt

    console = make_console()
    for tensor in tensors:
        print_lines(console, [line((f"{WORD.get(tensor.io, tensor.io)} {tensor.slot}", "bold"))])
        try:
            lines = excerpt(run.value(tensor))
        except MissingValueError as error:
            lines = [f"not kept: {error}"]
        print_lines(console, (line(f"  {text}") for text in lines))


def frames_of(run: Run, call: Call) -> tuple[str, ...]:
    """The Python stack of a call, innermost first; empty where none was recorded."""
    from opscope.run.query import rows_where

    if call.stack is None:
        return ()
    stacks = rows_where(
        run,
        "stacks",
        ("process", "stack", "frames"),
        lambda batch: (batch["process"] == call.process) & (batch["stack"] == call.stack),
    )
    return next((tuple(frames or ()) for _, _, frames in stacks), ())


def _document(
    path: str, run: Run, shown: Iterable[Call], wanted: Selection, *, values: bool
) -> Iterator[str]:
    from opscope.report.json import json_pieces
    from opscope.run.query import tensors_of

    calls = shown if isinstance(shown, Again | Limited) else list(shown)

    def tensors() -> Iterator[Tensor]:
        return (tensor for call in calls for tensor in tensors_of(run, call, io=wanted.io))

    lists: list[tuple[str, Iterable[Any]]] = [
        ("calls", calls),
        ("tensors", tensors()),
        ("processes", run.processes),
    ]
    if values:
        lists.append(("values", (_elements(run, tensor) for tensor in tensors())))
    more = {"more": shown.more} if isinstance(shown, Limited) else {}
    head = {
        "opscope": VERSION,
        "verb": "show",
        "runs": [path],
        "complete": not run.problems,
        **more,
    }
    return json_pieces(head, lists)


def _elements(run: Run, tensor: Tensor) -> dict[str, Any]:
    from opscope.report.values import elements

    row = {"process": tensor.process, "index": tensor.index, "io": tensor.io, "slot": tensor.slot}
    try:
        return {**row, **elements(run.value(tensor))}
    except MissingValueError:
        return {**row, "size": tensor.size, "elements": None}
