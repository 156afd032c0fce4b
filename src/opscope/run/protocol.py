# SPDX-License-Identifier: Apache-2.0
"""What every run offers, whatever it was read from: facts about it, its tables as Arrow streams,
and tensor values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.run.schema import Process, Tensor


class ArrowStream(Protocol):
    """A table that can be read any number of times; each call of __arrow_c_stream__ opens it
    again.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of a run say by what wrote them, whatever program it was.

    versions: rows name the version of every tensor and the call around a call, so that who wrote
    what is read is known; inputs: every input has a row; phases: calls of optimizers say that they
    are; statistics: every tensor on the CPU that anybody has written has them, of the values that
    the run holds; integers: a call in which integers wrapped says so in its status; samples: calls
    that were judged while the program ran keep their inputs; seeds: the run says how it was seeded;
    keywords: keyword arguments are there; before: inputs are what the call was given, also of one
    that writes to them.

    What a run was not told to leave out: reads, what calls read; writes, what they wrote; every,
    calls of operators or APIs of a forward pass; modules, calls of modules; passes, backward passes
    and updates; steps, any but the first of many.
    """

    versions: bool = False
    inputs: bool = False
    phases: bool = False
    statistics: bool = False
    integers: bool = False
    samples: bool = False
    seeds: bool = False
    keywords: bool = True
    before: bool = True
    reads: bool = True
    writes: bool = True
    every: bool = True
    modules: bool = True
    passes: bool = True
    steps: bool = True


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a run as a whole; format names what wrote it ("opscope", "msprobe", "mindspore",
    "cann", …), coverage what such runs can be relied on to say.
    """

    path: str
    format: str
    version: str | None = None
    command: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    packages: dict[str, str] = {}
    environment: dict[str, str] = {}
    seed: int | None = None
    deterministic: bool | None = None
    overhead: float | None = None
    hidden_calls: int = 0
    sealed: bool = True
    coverage: Coverage = Coverage()


class Table(ArrowStream, Protocol):
    """A table as a person holds it: its column names in order, and itself for other libraries."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    def arrow(self) -> Any: ...
    def to_pandas(self) -> Any: ...
    def to_polars(self) -> Any: ...


@runtime_checkable
class Run(Protocol):
    """A table of operator calls, a table of the tensors they read and wrote, and a store of tensor
    values; attribute `access` (run.access) may tell shorter ways to them.
    """

    @property
    def info(self) -> RunInfo: ...

    @property
    def processes(self) -> tuple[Process, ...]: ...

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each thing that is missing or torn; empty when the run is complete."""
        ...

    if TYPE_CHECKING:  # of run.relation; a reader of another package can do without

        @property
        def calls(self) -> Table: ...
        @property
        def tensors(self) -> Table: ...
        @property
        def stacks(self) -> Table: ...
        @property
        def judgements(self) -> Table: ...

    def table(self, name: str) -> ArrowStream:
        """Table "calls", "tensors", "stacks" or "judgements", schema.TABLES[name] in column
        order.
        """
        ...

    def value(self, tensor: Tensor) -> Array:
        """Elements of one tensor row in its logical shape and true dtype.

        bfloat16 and the eight-bit floats, which NumPy does not have, are their bits under a type
        that names them; opscope.widened gives their numbers. Raises MissingValueError when they
        were not kept.
        """
        ...
