# SPDX-License-Identifier: Apache-2.0
"""A run whose tables are records in memory: what readers of other formats build, and tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opscope.errors import MissingValueError
from opscope.run.access import Access
from opscope.run.arrow import RowsTable
from opscope.run.relation import Relations
from opscope.run.schema import Call, Judgement, Process, Stack, Tensor

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.run.access import TensorRow
    from opscope.run.protocol import ArrowStream, RunInfo

Value = Callable[[Tensor], "Array"]


def _nothing_kept(tensor: Tensor) -> Array:
    raise MissingValueError(
        f"values of {tensor.io} {tensor.slot} of call #{tensor.index} were not kept"
    )


class MemoryRun(Relations):
    """A run given by its rows and a function that loads the values of a tensor row.

    problems is one line for each thing that is missing or torn. value raises MissingValueError
    where none were kept. norms: see Access.
    """

    def __init__(  # noqa: PLR0913 - one for each table of the schema
        self,
        info: RunInfo,
        processes: Iterable[Process] = (),
        calls: Iterable[Call] = (),
        tensors: Iterable[Tensor] = (),
        stacks: Iterable[Stack] = (),
        judgements: Iterable[Judgement] = (),
        *,
        value: Value = _nothing_kept,
        problems: Iterable[str] = (),
        norms: Mapping[TensorRow, float] | None = None,
    ) -> None:
        self.info = info
        self.processes = tuple(processes)
        self.problems = tuple(problems)
        self._tensors = tuple(tensors)
        self._rows: dict[str, tuple[Any, ...]] = {
            "calls": tuple(calls),
            "tensors": self._tensors,
            "stacks": tuple(stacks),
            "judgements": tuple(judgements),
        }
        self._value = value
        self.access = Access(
            rows=self.rows, tensors_of=self.tensors_of, norms={} if norms is None else norms
        )

    def table(self, name: str) -> ArrowStream:
        """Table "calls", "tensors", "stacks" or "judgements"."""
        return RowsTable(name, self._rows[name])

    def rows(self, name: str) -> tuple[Any, ...]:
        """The records themselves, as given."""
        return self._rows[name]

    def tensors_of(self, process: int, index: int) -> tuple[Tensor, ...]:
        """Tensor rows of one call, in the order they were given."""
        return tuple(self._tensors_by_call.get((process, index), ()))

    def value(self, tensor: Tensor) -> Array:
        """Elements of one tensor row; MissingValueError when they were not kept."""
        return self._value(tensor)

    @cached_property
    def _tensors_by_call(self) -> dict[tuple[int, int], list[Tensor]]:
        return by_call(self._tensors)


def by_call(tensors: Iterable[Tensor]) -> dict[tuple[int, int], list[Tensor]]:
    """Tensor rows by process and index of their call, in their order."""
    rows: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        rows[tensor.process, tensor.index].append(tensor)
    return rows
