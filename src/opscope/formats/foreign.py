# SPDX-License-Identifier: Apache-2.0
"""A run over foreign files: calls are known at once, tensor rows and their statistics are made when
they are asked for.

table("calls") reads no payload. table("tensors") reads every file once, on all cores, and fills the
statistics columns; tensors_of reads only the files of one call. A file that cannot be read becomes
one line of problems and a row without statistics.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.formats.npy import in_shape
from opscope.kernels.calls import STATISTICS
from opscope.run.access import Access, TensorRow
from opscope.run.dtypes import DType, dtype_of_numpy, find_dtype
from opscope.run.memory import by_call
from opscope.run.relation import Relations
from opscope.run.schema import Call, Judgement, Process, Stack, Tensor

if TYPE_CHECKING:
    from opscope.run.arrow import RowsTable
    from opscope.run.protocol import ArrowStream, RunInfo

Load = Callable[[Path, str, "DType | None"], Array]
UNKNOWN = "unknown"  # dtype of a row whose file has not been opened yet
_CHUNK = 8  # rows that a thread takes at once: few, so that none waits for another's at the end


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader knows without opening payloads."""

    calls: tuple[Call, ...] = ()
    processes: tuple[Process, ...] = ()
    stacks: tuple[Stack, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    problems: tuple[str, ...] = ()
    hashes: dict[TensorRow, str] = {}  # of the tool that wrote it; filled as rows are drafted


class ForeignRun(Relations):
    """A run given by its calls, a function that drafts the tensor rows of one call, and one that
    loads a file's values.

    A draft has every column but the measured ones; dtype "unknown" and shape None are taken from
    the file. load gets the file, the key in it and the true element type. Values are looked for
    only inside root.
    """

    def __init__(
        self,
        info: RunInfo,
        root: Path,
        tables: Tables,
        draft: Callable[[Call], Sequence[Tensor]],
        *,
        load: Load,
        late: list[str] | None = None,
    ) -> None:
        self.info = info
        self.processes = tables.processes
        self._root = root.resolve()
        self._tables = tables
        self._draft = draft
        self._load = load
        self._late = late if late is not None else []
        self._calls = {(call.process, call.index): call for call in tables.calls}
        self.access = Access(rows=self.rows, tensors_of=self.tensors_of, hashes=tables.hashes)

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each thing that is missing or torn, the ones met while measuring
        included.
        """
        return tuple(dict.fromkeys((*self._tables.problems, *self._late)))

    def table(self, name: str) -> ArrowStream:
        """Table "calls", "tensors", "stacks" or "judgements"; the tensors are measured when their
        stream is first opened.
        """
        from opscope.run.arrow import RowsTable

        return _MeasuredTable(self) if name == "tensors" else RowsTable(name, self.rows(name))

    def rows(self, name: str) -> tuple[Any, ...]:
        """The records of a table."""
        if name == "tensors":
            return self._tensors
        if name not in {"calls", "stacks", "judgements"}:
            raise UsageError(f"a run has no table {name!r}")
        rows: tuple[Any, ...] = getattr(self._tables, name)
        return rows

    def tensors_of(self, process: int, index: int) -> tuple[Tensor, ...]:
        """Tensor rows of one call, measured; reads only that call's files."""
        if "_tensors" in self.__dict__:
            return tuple(self._by_call.get((process, index), ()))
        call = self._calls.get((process, index))
        return tuple(self._measured(row) for row in self._draft(call)) if call is not None else ()

    def value(self, tensor: Tensor) -> Array:
        """Elements of one row in its true type; MissingValueError when no file holds all of
        them.
        """
        if tensor.value is None:
            raise MissingValueError(_missing(tensor))
        values = self._load(
            self._inside(tensor.value.shard), tensor.value.key, find_dtype(tensor.dtype)
        )
        if tensor.shape is None or tensor.shape == values.shape:
            return values
        if (values.ndim == 1 or values.size == 0) and math.prod(tensor.shape) == values.size:
            return in_shape(
                values, tensor.shape, tensor.value.shard
            )  # a file of plain bytes or text has no shape of its own
        return values

    def _inside(self, shard: str) -> Path:
        """The file of a shard; names come from files too, so none may lead out of the root."""
        if ".." in shard.split("/") or shard.startswith("/") or "\\" in shard or "\0" in shard:
            raise MissingValueError(f"{shard!r} lies outside of {self._root}")
        return self._root / shard

    @cached_property
    def _tensors(self) -> tuple[Tensor, ...]:
        drafts = [row for call in self._tables.calls for row in self._draft(call)]
        chunks = [drafts[start : start + _CHUNK] for start in range(0, len(drafts), _CHUNK)]
        if len(chunks) < 2:
            return tuple(self._measured(row) for row in drafts)
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            return tuple(row for part in pool.map(self._measured_all, chunks) for row in part)

    @cached_property
    def _by_call(self) -> dict[tuple[int, int], list[Tensor]]:
        return by_call(self._tensors)

    def _measured_all(self, rows: Iterable[Tensor]) -> list[Tensor]:
        return [self._measured(row) for row in rows]

    def _measured(self, row: Tensor) -> Tensor:
        if row.value is None or row.partial:
            return row
        try:
            values = self.value(row)
            if row.shape is not None and row.shape != values.shape:
                self._late.append(
                    f"{self._root / row.value.shard}: holds shape {values.shape} where "
                    f"{row.shape} was announced"
                )
            return measure(row, values)
        except (FormatError, MissingValueError, UsageError) as error:
            self._late.append(str(error))
        except MemoryError:
            self._late.append(
                f"{self._root / row.value.shard}: too large for this machine's memory"
            )
        return msgspec.structs.replace(row, value=None)


class _MeasuredTable:
    """Table tensors of a foreign run; asking for its schema, as a database does for every table,
    measures nothing.
    """

    def __init__(self, run: ForeignRun) -> None:
        self._run = run

    def __arrow_c_schema__(self) -> object:
        from opscope.run.arrow import table_schema

        return table_schema("tensors").__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._measured.__arrow_c_stream__(requested_schema)

    @cached_property
    def _measured(self) -> RowsTable:
        from opscope.run.arrow import RowsTable

        return RowsTable("tensors", self._run.rows("tensors"))


def _missing(tensor: Tensor) -> str:
    what = f"values of {tensor.io} {tensor.slot} of call #{tensor.index}"
    if tensor.partial:
        return f"{what} are only partly in the dump: its file holds fewer bytes than the tensor"
    return f"{what} were not kept"


def measure(row: Tensor, values: Array) -> Tensor:
    """The row with its type, shape and statistics taken from the values; strings are listed without
    statistics.

    A type that NumPy does not have (hifloat8, int4) stays the row's: its values come decoded.
    """
    kind = _kind(values.dtype)
    if kind.kind == "string":
        return msgspec.structs.replace(row, dtype=kind.name, shape=values.shape, value=None)
    announced = find_dtype(row.dtype)
    name = row.dtype if announced is not None and announced.numpy is None else kind.name
    return msgspec.structs.replace(
        row, dtype=name, shape=tuple(values.shape), **_statistics(values)
    )


@lru_cache(maxsize=64)
def _kind(dtype: np.dtype[Any]) -> DType:
    return dtype_of_numpy(dtype)


def _statistics(values: Array) -> dict[str, Any]:
    from opscope.kernels import statistics

    measured = statistics(values)
    return {name: getattr(measured, name) for name in (*STATISTICS, "digest", "sample")}
