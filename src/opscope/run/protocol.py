# SPDX-License-Identifier: Apache-2.0
"""What every run offers, whatever it was read from: facts about it, its tables as Arrow streams,
and tensor values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    import numpy as np

    from opscope.run.schema import Process, Tensor


class ArrowStream(Protocol):
    """A table that can be read any number of times; each call of __arrow_c_stream__ opens it
    again.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a run as a whole; format names what wrote it ("opscope", "msprobe", "mindspore",
    "cann", …).
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
    values.
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

    def value(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """Elements of one tensor row in its logical shape and true dtype (ml_dtypes for bf16 and
        fp8).

        Raises MissingValueError when they were not kept.
        """
        ...
