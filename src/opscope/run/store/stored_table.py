# SPDX-License-Identifier: Apache-2.0
"""Reading one table of one process: its segments as a row of batches, damaged ones left out and
named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.errors import FormatError
from opscope.run.arrow import NUMBERS, Column, column_values, encode_columns, table_schema
from opscope.run.schema import RECORDS, TABLES
from opscope.run.store.ipc import Batch, IpcFile
from opscope.run.store.layout import segment_files, segment_name
from opscope.run.store.tables import batch_bytes, schema_bytes

_NONE: Mapping[str, int] = {}
_REQUIRED = {
    table: [field.name for field in msgspec.structs.fields(record) if field.required]
    for table, record in RECORDS.items()
}


class _Columns(Mapping[str, Column]):
    """Columns of a sound batch; those of numbers, which cannot be damaged any more, are made when
    they are looked up.
    """

    def __init__(
        self,
        file: IpcFile,
        batch: Batch,
        names: Sequence[str],
        checked: dict[str, Column],
        constants: Mapping[str, int],
    ) -> None:
        self._file = file
        self._batch = batch
        self._names = names
        self._checked = checked
        self._constants = constants

    def __getitem__(self, name: str) -> Column:
        column = self._checked.get(name)
        if column is not None:
            return column
        if name not in self._names:
            raise KeyError(name)
        number = self._constants.get(name)
        if number is None:
            return self._file.column(self._batch, name)
        return Column(
            "int32", self._batch.rows, 0, None, (np.full(self._batch.rows, number, dtype=np.int32),)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class StoredTable:
    """The batches of a table, oldest segment first, by number. problems gets a line for each file
    or batch that is not read; arrive is asked for the segments first.
    """

    def __init__(
        self,
        directory: Path,
        table: str,
        problems: list[str],
        arrive: Callable[[Path, str], None],
    ) -> None:
        self._directory = directory
        self._arrive = arrive
        self._table = table
        self._problems = problems
        self._screened: set[int] = set()
        self._checked: set[int] = set()
        self._damaged: set[int] = set()
        self._torn = False

    @cached_property
    def _batches(self) -> tuple[tuple[IpcFile, Batch], ...]:
        return tuple(self._open())

    def _open(self) -> Iterator[tuple[IpcFile, Batch]]:
        try:
            self._arrive(self._directory, self._table)
            paths = segment_files(self._directory, self._table)
        except OSError as error:
            self._problems.append(f"{self._directory}: cannot be listed: {error.strerror}")
            return
        except FormatError as error:
            self._torn = True
            self._problems.append(str(error))
            return
        for path in paths:
            try:
                file = open_table(path, self._table)
            except FormatError as error:
                self._torn = True
                self._problems.append(f"{error}; no batch of it was read")
                continue
            batches = file.batches
            if file.torn is not None:
                self._torn = True
                where = FormatError(
                    path, f"{file.torn_reason}, {len(batches)} whole batches read", offset=file.torn
                )
                self._problems.append(str(where))
            yield from ((file, batch) for batch in batches)

    def __len__(self) -> int:
        return len(self._batches)

    def rows(self, number: int) -> int:
        """Rows in a batch."""
        return self._batches[number][1].rows

    def release(self, number: int | None = None) -> None:
        """Gives back the memory in which a batch, or every one, lies mapped."""
        for file, batch in self._batches if number is None else self._batches[number : number + 1]:
            file.release(batch)

    def expect(self, rows: int) -> None:
        """A problem where fewer rows are here than the process wrote, and nothing that was read
        says why.
        """
        here = sum(self.rows(number) for number in range(len(self)))
        if here < rows and not self._torn:
            path = self._directory / segment_name(self._table, 0)
            why = "a file was left behind or cut, copy the run again"
            self._problems.append(
                f"{path}: {here} of the {rows} rows that were written are here: {why}"
            )

    def usable(
        self, names: Sequence[str], calls: np.ndarray[Any, np.dtype[np.int64]] | None = None
    ) -> Iterator[int]:
        """Numbers of the batches of which these columns are sound and the required ones complete.

        calls: numbers of calls, sorted; batches that lie between two of them are left out.
        """
        numbers = all(TABLES[self._table][name] in NUMBERS for name in names)
        sound = self._is_usable if numbers else self._is_sound
        for number in range(len(self)):
            if not sound(number):
                continue
            if calls is None or self._touches(number, calls):
                yield number
            else:
                self.release(number)  # which was read to see whether it is sound

    def sound(self) -> Iterator[int]:
        """Numbers of the batches of which every column is sound."""
        return (number for number in range(len(self)) if self._is_sound(number))

    def column(self, number: int, name: str) -> Column:
        """One column of a batch; FormatError when it is text or a list and damaged."""
        file, batch = self._batches[number]
        return file.column(batch, name)

    def read(
        self, number: int, names: Sequence[str], constants: Mapping[str, int] = _NONE
    ) -> Mapping[str, Column] | None:
        """Some columns of a batch as views of the file; None, and a problem, when they are damaged.

        int32 columns named in constants hold that number in every row.
        """
        if not self._is_usable(number):
            return None
        file, batch = self._batches[number]
        try:
            checked = {name: file.column(batch, name) for name in names if not file.is_number(name)}
        except FormatError as error:
            self._leave_out(number, error)
            return None
        if len(names) == len(TABLES[self._table]):
            self._checked.add(number)
        return _Columns(file, batch, names, checked, constants)

    def read_all(self, names: Sequence[str]) -> Iterator[Mapping[str, Column]]:
        """Some columns of every batch that is sound."""
        for number in range(len(self)):
            columns = self.read(number, names)
            if columns is not None:
                yield columns
                self.release(number)

    def messages(self, constants: Mapping[str, int]) -> Iterator[memoryview | bytearray]:
        """Bytes of every sound batch; int32 columns named in constants hold that number in every
        row.
        """
        own = {name: value for name, value in constants.items() if name in TABLES[self._table]}
        for number, (file, batch) in enumerate(self._batches):
            if self._is_sound(number):
                yield file.message(batch, own)
            file.release(batch)

    def _touches(self, number: int, calls: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
        """Whether one of these calls, sorted, lies between the first and the last one of a
        batch.
        """
        index = self.column(number, "index").buffers[0]
        return bool(len(index)) and bool(
            np.diff(np.searchsorted(calls, (index.min(), index.max() + 1)))[0]
        )

    def _is_usable(self, number: int) -> bool:
        """Whether the numbers of a batch are sound and no required column has nulls, found out
        once.
        """
        file, batch = self._batches[number]
        if number not in self._screened:
            self._screened.add(number)
            try:
                file.check_numbers(batch)
                missing = next(
                    (name for name in _REQUIRED[self._table] if file.has_nulls(batch, name)), None
                )
                if missing is not None:
                    raise FormatError(
                        file.path, f"column {missing} has rows without a value", offset=batch.offset
                    )
            except FormatError as error:
                self._leave_out(number, error)
        return number not in self._damaged

    def _is_sound(self, number: int) -> bool:
        """Whether every column of a batch is, found out once."""
        file, batch = self._batches[number]
        if self._is_usable(number) and number not in self._checked:
            self._checked.add(number)
            try:
                file.check(batch)
            except FormatError as error:
                self._leave_out(number, error)
        return number not in self._damaged

    def _leave_out(self, number: int, error: FormatError) -> None:
        if number not in self._damaged:
            self._damaged.add(number)
            self._problems.append(f"{error}; this batch was left out")


# Opening a table file of another column order or minor schema: through a temporary copy with the
# columns of this one.
#
# Columns the file does not have are null in the copy, columns this schema does not know are left
# out. nanoarrow is not asked to read the file: it crashes on some damaged ones, and the
# projecting reader checks every offset.


def open_table(path: Path, table: str) -> IpcFile:
    """A table file with the columns of the schema; FormatError when it cannot be read at all."""
    file = IpcFile(path)
    wanted = TABLES[table]
    if list(file.types.items()) == list(wanted.items()):
        return file
    for name, kind in wanted.items():
        if file.types.get(name, kind) != kind:
            raise FormatError(path, f"column {name} has type {file.types[name]}, not {kind}")
    import tempfile

    with tempfile.TemporaryFile() as copy:  # the map outlives the file object
        copy.write(schema_bytes(table_schema(table)))
        for batch in file.batches:
            columns = [
                column_values(file.column(batch, name))
                if name in file.types
                else [None] * batch.rows
                for name in wanted
            ]
            copy.write(batch_bytes(encode_columns(wanted, columns)))
        copy.flush()
        opened = IpcFile(path, copy)
    opened.torn, opened.torn_reason = file.torn, file.torn_reason
    return opened
