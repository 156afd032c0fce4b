# SPDX-License-Identifier: Apache-2.0
"""The tables of a run as a person holds them: shown by their first rows, and handed to pandas,
polars or Arrow.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from opscope.run.printable import printable
from opscope.run.schema import TABLES

if TYPE_CHECKING:
    from opscope.run.protocol import ArrowStream, Run

_SHOWN = 8  # rows
_WIDE = 40  # characters of a cell
_WIDTH = 100
# What pandas holds numbers with nulls in, by NumPy's kind of their type.
_NULLABLE = {"i": "IntegerArray", "u": "IntegerArray", "f": "FloatingArray", "b": "BooleanArray"}


class Relation:
    """One table of a run, read anew each time it is handed on.

    columns are its names in order. What reads Arrow's stream protocol (polars, pyarrow, duckdb,
    nanoarrow) takes the table as it is.
    """

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self.name = name
        self.columns = tuple(TABLES[name])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table().__arrow_c_stream__(requested_schema)

    def _table(self) -> ArrowStream:
        return self._run.table(self.name)

    def arrow(self) -> Any:
        """A pyarrow.Table, which shares the memory that was read."""
        import pyarrow

        return pyarrow.table(self)

    to_arrow = arrow

    def to_polars(self) -> Any:
        """A polars.DataFrame, which shares the memory that was read."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; numbers of columns with nulls are of pandas' nullable types, so that
        no version or digest loses a digit.
        """
        import pandas

        from opscope.run.query import columns

        parts: dict[str, list[Any]] = {name: [] for name in self.columns}
        for batch in columns(self._run, self.name, self.columns):
            for name in self.columns:
                parts[name].append(batch[name].copy())
        return pandas.DataFrame({name: _series(pandas, pieces) for name, pieces in parts.items()})

    def _first(self) -> tuple[list[dict[str, Any]], bool]:
        """The first rows, and whether there are more."""
        from opscope.run.arrow import decode_stream

        records = list(islice(decode_stream(self.name, self._table()), _SHOWN + 1))
        rows = [{name: getattr(row, name) for name in self.columns} for row in records[:_SHOWN]]
        return rows, len(records) > _SHOWN

    def __repr__(self) -> str:
        rows, more = self._first()
        head = f"<{self.name} of {printable(self._run.info.path)}: {len(self.columns)} columns>"
        names = _narrow(rows, self.columns)
        cells = [list(names), *([cell(row[name]) for name in names] for row in rows)]
        wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(text.ljust(size) for text, size in zip(row, wide, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([head, *lines, *(["…"] if more else [])])

    def _repr_html_(self) -> str:
        rows, more = self._first()
        return html_table(
            f"{self.name} of {self._run.info.path}" + (f", the first {_SHOWN}" if more else ""),
            self.columns,
            ([cell(row[name]) for name in self.columns] for row in rows),
        )


class Relations:
    """What every run of the house has beside what the protocol asks for: its tables by name, and
    how it is shown.
    """

    @property
    def calls(self) -> Relation:
        """The operator calls, one row each."""
        return Relation(self._run, "calls")

    @property
    def tensors(self) -> Relation:
        """The tensors that calls read and wrote, one row each."""
        return Relation(self._run, "tensors")

    @property
    def stacks(self) -> Relation:
        """The Python stacks of calls."""
        return Relation(self._run, "stacks")

    @property
    def judgements(self) -> Relation:
        """What was judged while the program ran."""
        return Relation(self._run, "judgements")

    @property
    def _run(self) -> Run:
        run: Any = self
        own_run: Run = run
        return own_run

    def __repr__(self) -> str:
        facts = dict(self._facts())
        said = ", ".join(f"{name} {value}" for name, value in facts.items())
        return f"<Run {printable(self._run.info.path)}: {said}>"

    def _repr_html_(self) -> str:
        return html_table(f"Run {self._run.info.path}", ("", ""), self._facts())

    def _facts(self) -> Iterable[tuple[str, str]]:
        """What reading no table tells."""
        info, processes = self._run.info, self._run.processes
        yield "format", printable(f"{info.format} {info.version or ''}".strip())
        if info.command:
            yield "command", printable(" ".join(info.command))
        yield "processes", str(len(processes))
        steps = [each.steps for each in processes if each.steps is not None]
        if steps:
            yield "steps", str(max(steps))


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook; every text is escaped."""

    def row(cells: Sequence[str], tag: str) -> str:
        inside = "".join(f"<{tag}>{html.escape(printable(text))}</{tag}>" for text in cells)
        return f"<tr>{inside}</tr>"

    named = f"<thead>{row(head, 'th')}</thead>" if any(head) else ""
    body = "".join(row(cells, "td") for cells in rows)
    caption = f"<caption>{html.escape(printable(title))}</caption>" if title else ""
    return f"<table>{caption}{named}<tbody>{body}</tbody></table>"


def cell(value: Any) -> str:
    """A value as a table shows it: six digits, forty characters."""
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = printable(text)
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"


def _narrow(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that a line of text has room for: from the left, those that hold something."""
    chosen: list[str] = []
    room = _WIDTH
    for name in columns:
        cells = [cell(row[name]) for row in rows]
        size = max(map(len, (name, *cells))) + 2
        if (any(cells) or not rows) and size <= room:
            chosen.append(name)
            room -= size
    return tuple(chosen)


def _series(pandas: Any, parts: Sequence[Any]) -> Any:
    """Batches of one column as one pandas array."""
    import numpy as np

    if not parts:
        return pandas.array([], dtype="object")
    data = np.concatenate([np.ma.getdata(part) for part in parts])
    if not any(isinstance(part, np.ma.MaskedArray) for part in parts):
        return data
    made = getattr(pandas.arrays, _NULLABLE[data.dtype.kind])
    return made(data, np.concatenate([np.ma.getmaskarray(part) for part in parts]))
