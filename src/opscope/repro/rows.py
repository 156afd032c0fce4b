# SPDX-License-Identifier: Apache-2.0
"""Rows of a run beside those of the call itself: the operators inside it, and where the values of
its inputs were kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.run.keys import keys_at
from opscope.run.query import records_of, rows_where
from opscope.run.schema import ValueRef

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor

_VIEW = ("storage", "offset", "dtype", "shape", "stride")


class Sample(msgspec.Struct, frozen=True):
    """What of a judgement's sample is needed: where inputs were kept, by slot, and of a function
    above kernels its arguments.

    gradient is the argument whose gradient was wrong, None where a result was.
    """

    inputs: dict[str, tuple[str, str]] = {}
    args: dict[str, Any] | None = None
    gradient: str | None = None
    differences: bool = False


def operators_inside(run: Run, call: Call) -> list[str]:
    """Names of the first five operator calls directly inside an api or module call."""
    inside = rows_where(
        run,
        "calls",
        ("index", "name", "level", "process", "parent"),
        lambda batch: (batch["process"] == call.process) & (batch["parent"] == call.index),
    )
    named = sorted((index, name) for index, name, level, *_ in inside if level == "operator")
    return [name for _, name in named[:5]]


def same_elements(row: Tensor) -> tuple[object, ...]:
    """Equal for two rows of one process and one tensor version that run through the same elements
    in the same order.
    """
    return tuple(getattr(row, name) for name in _VIEW)


def borrow_values(run: Run, rows: Sequence[Tensor]) -> list[Tensor]:
    """The rows, those without values pointing to where another row of the same version and the same
    view kept them.
    """
    rows = _judged_values(run, rows)
    lacking = [row for row in rows if row.value is None and row.version is not None]
    if not lacking:
        return list(rows)
    versions = [row.version for row in lacking if row.version is not None]
    kept = _kept_values(run, lacking[0].process, versions)
    return [row if row not in lacking else _with_value(row, kept) for row in rows]


def _kept_values(run: Run, process: int, versions: Sequence[int]) -> dict[object, ValueRef]:
    """The first value that is kept of each view of these versions of tensors."""
    kept: dict[object, ValueRef] = {}
    rows = rows_of_versions(run, process, versions, ("value", "version", *_VIEW))
    for value, *view in rows:
        if value is not None:
            kept.setdefault(tuple(view), value)
    return kept


def rows_of_versions(
    run: Run, process: int, versions: Sequence[int], names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """These columns of the rows that are of these versions of a process's tensors."""

    def of_them(batch: Mapping[str, Array]) -> Bools:
        known = ~np.ma.getmaskarray(batch["version"]) & (batch["process"] == process)
        chosen: Bools = known & np.isin(np.ma.getdata(batch["version"]), versions)
        return chosen

    if versions:
        for row in rows_where(run, "tensors", (*names, "process", "version"), of_them):
            yield row[: len(names)]


def judged(run: Run, *, process: int, index: int) -> list[Sample]:
    """What checks told of a call."""
    samples = []
    for row in records_of(run, "judgements", keys_at([(process, index)])):
        with contextlib.suppress(msgspec.MsgspecError):
            if row.sample is not None:
                samples.append(msgspec.json.decode(row.sample, type=Sample))
    return samples


def argument_text(run: Run, call: Call) -> str | None:
    """The arguments of a call as its row has them, or, of a function above kernels, as a check told
    them.

    Raises UsageError for a formula that was judged by differences: those of the operator itself, so
    that no other process can tell.
    """
    if call.args is not None:
        return call.args
    told = judged(run, process=call.process, index=call.index)
    if any(sample.differences for sample in told):
        raise UsageError(
            f"{call.name}: the gradient formula of {call.op} was judged by differences of its "
            "own results, which a case cannot be;"
            " torch.autograd.gradcheck shows it"
        )
    return next(
        (msgspec.json.encode(sample.args).decode() for sample in told if sample.args is not None),
        None,
    )


def _judged_values(run: Run, rows: Sequence[Tensor]) -> list[Tensor]:
    """The rows, those without values pointing to what run --check kept of a call that it found
    wrong.
    """
    if all(row.value is not None for row in rows) or not run.info.coverage.samples:
        return list(rows)
    kept: dict[str, ValueRef] = {}
    for sample in judged(run, process=rows[0].process, index=rows[0].index):
        kept.update({slot: ValueRef(shard, key) for slot, (shard, key) in sample.inputs.items()})
    return [
        row
        if row.value is not None or row.slot not in kept
        else msgspec.structs.replace(row, value=kept[row.slot])
        for row in rows
    ]


def _with_value(row: Tensor, kept: Mapping[object, ValueRef]) -> Tensor:
    return msgspec.structs.replace(row, value=kept.get((row.version, *same_elements(row))))
