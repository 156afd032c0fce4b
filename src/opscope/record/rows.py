# SPDX-License-Identifier: Apache-2.0
"""Drafts of the bookkeeper as rows of the tables, in Arrow form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.run.arrow import encode_rows
from opscope.run.schema import LEVELS, Call, Row, Tensor, ValueRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.kernels.calls import Draft, Observed


def arrow_batches(drafts: list[Draft], *, process: int, rank: int, levels: int) -> tuple[Any, Any]:
    """Arrow batches of tables calls and tensors, None for one without rows; levels: 1 operator, 2
    API, 4 module.
    """
    drafts = [draft for draft in drafts if levels >> LEVELS.index(draft.level) & 1]
    calls: list[Row] = [call_row(draft, process=process, rank=rank) for draft in drafts]
    tensors: list[Row] = [row for draft in drafts for row in tensor_rows(draft, process=process)]
    return (
        encode_rows("calls", calls) if calls else None,
        encode_rows("tensors", tensors) if tensors else None,
    )


def call_row(draft: Draft, *, process: int, rank: int) -> Call:
    site = draft.site
    return Call(
        process=process,
        rank=rank,
        step=draft.step,
        index=draft.index,
        level=draft.level,
        parent=draft.parent,
        phase=draft.phase,
        op=draft.op,
        module=draft.module,
        name=draft.name,
        forward_index=draft.forward_index,
        autograd_thread=draft.thread if draft.autograd is not None else None,
        autograd_sequence=draft.autograd,
        stack=site.stack if site is not None else None,
        source=draft.source,
        args=draft.args,
        thread=draft.thread,
        device=next((seen.facts.device for seen in (*draft.outputs, *draft.inputs)), None),
        status=draft.status,
        error=draft.error,
        again=draft.again,
    )


def tensor_rows(draft: Draft, *, process: int) -> Iterator[Tensor]:
    for seen in (*draft.inputs, *draft.outputs):
        yield tensor_row(seen, process=process, index=draft.index)


def tensor_row(seen: Observed, *, process: int, index: int) -> Tensor:
    facts, storage = seen.facts, seen.storage
    whole = facts.logical is None  # the values that a composed tensor shares are not the tensor
    value = seen.value or (seen.version.value if seen.version is not None and whole else None)
    return Tensor(
        process=process,
        index=index,
        io=seen.io,
        slot=seen.slot,
        version=seen.version.number if seen.version is not None else None,
        storage=storage.number if storage is not None else None,
        offset=facts.offset,
        dtype=facts.dtype,
        shape=facts.shape if facts.logical is None else facts.logical,
        stride=facts.stride if whole else (),
        device=facts.device,
        layout=facts.layout,
        tensor_class=facts.tensor_class,
        role=storage.role if storage is not None else None,
        tensor_name=storage.name if storage is not None else None,
        requires_grad=facts.requires_grad,
        value=ValueRef(*value) if value is not None else None,
        **seen.statistics(),
    )
