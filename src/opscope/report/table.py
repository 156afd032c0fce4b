# SPDX-License-Identifier: Apache-2.0
"""Rows of a query as a table for eyes or as comma-separated values for programs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from opscope.report.console import make_console, print_lines
from opscope.report.json import json_text
from opscope.run.printable import printable

# Rows whose widths decide the columns; what comes after is cut to them.
MEASURED = 1000
NARROWEST = 6
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|-inf")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def print_table(rows: Iterable[dict[str, Any]]) -> None:
    """A table as wide as the terminal; where the columns do not fit, one `column  value` a line for
    each row.
    """
    console = make_console()
    first = list(islice(rows, MEASURED))
    if not first:
        print_lines(console, [Text("no rows")])
        return
    names = list(first[0])
    widths = fitted(names, [[cell(row[name]) for name in names] for row in first], console.width)
    numeric = [all(isinstance(row[name], int | float | None) for row in first) for name in names]
    if widths is not None:
        print_lines(
            console,
            [Text(_row([printable(name) for name in names], widths, numeric).rstrip(), "bold")],
        )
    for row in chain(first, rows):
        said = (
            _record(row)
            if widths is None
            else [_row([cell(row[name]) for name in names], widths, numeric).rstrip()]
        )
        print_lines(console, map(Text, said))


def fitted(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Widths of the columns, the widest ones cut until all fit; None when they would have to be cut
    too much.
    """
    widths = [max(cell_len(text) for text in column) for column in zip(names, *cells, strict=True)]
    room = width - 2 * (len(names) - 1)
    if (
        sum(
            min(cut, max(NARROWEST, cell_len(name)))
            for cut, name in zip(widths, names, strict=True)
        )
        > room
    ):
        return None
    while sum(widths) > room:
        widest = widths.index(max(widths))
        others = max([cut for number, cut in enumerate(widths) if number != widest], default=0)
        widths[widest] = max(widths[widest] - (sum(widths) - room), min(others, widths[widest] - 1))
    return widths


def _row(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    return "  ".join(
        _fit(text, width, right=right)
        for text, width, right in zip(cells, widths, numeric, strict=True)
    )


def _fit(text: str, width: int, *, right: bool) -> str:
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - length) + text if right else text + " " * (width - length)


def _record(row: dict[str, Any]) -> list[str]:
    names = [printable(name) for name in row]
    width = max(cell_len(name) for name in names)
    return [
        f"{name}{' ' * (width - cell_len(name))}  {cell(value)}"
        for name, value in zip(names, row.values(), strict=True)
    ] + [""]


def cell(value: Any) -> str:
    """A value on one line; nothing for null, JSON for lists and structs."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(json_text(value) if isinstance(value, list | tuple | dict) else str(value))


def write_csv(rows: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Comma-separated values with a header, printable; text that a spreadsheet would take for a
    formula begins with an apostrophe.
    """
    writer = csv.writer(file, lineterminator="\n")
    for number, row in enumerate(rows):
        if not number:
            writer.writerow([_csv_text(name) for name in row])
        writer.writerow([_csv_cell(value) for value in row.values()])


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return json_text(value)
    return (
        value if value is None or isinstance(value, bool | int | float) else _csv_text(str(value))
    )


def _csv_text(text: str) -> str:
    """Text without control characters but the tabs and line ends that a quoted cell may have."""
    return harmless(re.sub(r"[^\t\n]+", lambda run: printable(run[0]), text))


def harmless(text: str) -> str:
    """The text, behind an apostrophe where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(FORMULA) and not _NUMBER.fullmatch(text) else text
