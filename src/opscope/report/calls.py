# SPDX-License-Identifier: Apache-2.0
"""Calls as text: a list of them, or one with all that is known about it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from opscope.report.console import folded, line
from opscope.report.oneline import one_line, row_statistics
from opscope.report.source import short_place, text_of
from opscope.run.printable import number

if TYPE_CHECKING:
    from rich.text import Text

    from opscope.run.schema import Call, Tensor

WORD = {"input": "in", "output": "out"}
WIDTH = 80  # a list of calls is as wide in a file as in a terminal


def call_lines(
    call: Call, tensors: Sequence[Tensor], folders: Mapping[int, str], *, ranks: bool, here: Path
) -> Iterator[Text]:
    """A call of a list: name, operator, place (relative to here), and a line for each tensor."""
    yield line(
        (call.name, "bold"), f"  {call.op}", *([(f"  {call.error}", "red")] if call.error else [])
    )
    rank = f"rank {call.rank}, " if ranks else ""
    source = f", {short_place(call.source, here=here)}" if call.source else ""
    yield line((f"  {rank}step {call.step}, #{call.index}, {call.phase}{source}", "dim"))
    for tensor in tensors:
        stats = row_statistics(tensor)
        style = "red" if _is_troubled(stats) else ""
        yield line(
            f"  {WORD.get(tensor.io, tensor.io):4} {tensor.slot}  ",
            (one_line(tensor.dtype, tensor.shape, stats, full=True), style),
        )
        stored_at = value_place(tensor, folders)
        if stored_at is not None:
            yield from folded("          values in ", stored_at, width=WIDTH, style="dim")


def call_page(
    call: Call, tensors: Sequence[Tensor], folders: Mapping[int, str], frames: Sequence[str]
) -> Iterator[Text]:
    """All that is known about one call, but for elements."""
    yield line((call.name, "bold"), f"  {call.op}")
    yield from _facts(call)
    for tensor in tensors:
        yield line("")
        yield from tensor_block(tensor, folders)
    if frames:
        yield line("")
        yield line(("stack, innermost first", "bold"))
        yield from _stack(frames)


def _stack(frames: Sequence[str]) -> Iterator[Text]:
    """The user's own frames with their code; those of installed packages are counted."""
    for foreign, group in itertools.groupby(frames, key=lambda frame: "/site-packages/" in frame):
        if foreign:
            yield line((f"  … {len(list(group))} in site-packages", "dim"))
            continue
        for frame in group:
            code = text_of(frame)
            yield line(f"  {frame}")
            if code is not None:
                yield line((f"      {code}", "dim"))


def _facts(call: Call) -> Iterator[Text]:
    yield line(
        f"  rank {call.rank}, step {call.step}, index {call.index}, {call.level}, {call.phase}"
    )
    facts: dict[str, Any] = {
        "module": call.module or "<root>",
        "source": call.source,
        "code": text_of(call.source) if call.source else None,
        "forward": f"#{call.forward_index}" if call.forward_index is not None else None,
        "inside": f"#{call.parent}" if call.parent is not None else None,
        "device": call.device,
        "status": f"{call.status:#x}" if call.status else None,
        "error": call.error,
        "args": call.args,
    }
    for name in ("task", "stream", "context"):
        facts[name] = getattr(call, name)
    for name, value in facts.items():
        if value is not None:
            yield line(f"  {name:8} {value}")


def tensor_block(tensor: Tensor, folders: Mapping[int, str]) -> Iterator[Text]:
    """One tensor: type and range, where it is, all statistics, where its values lie."""
    stats = row_statistics(tensor)
    name = f"  {tensor.tensor_name}" if tensor.tensor_name else ""
    summary = one_line(tensor.dtype, tensor.shape, stats, full=True)
    yield line(
        (f"{WORD.get(tensor.io, tensor.io)} {tensor.slot}", "bold"),
        "  ",
        (summary, "red" if _is_troubled(stats) else ""),
        name,
    )
    yield from _wrapped(_identity(tensor))
    if stats:
        yield from _wrapped([f"{column} {_statistic(value)}" for column, value in stats.items()])
    if tensor.digest is not None:
        yield line(f"  digest {tensor.digest:#018x}")
    stored_at = value_place(tensor, folders)
    if stored_at is None:
        yield line("  values not kept")
    else:
        yield from folded("  values in ", stored_at, width=WIDTH)


def _identity(tensor: Tensor) -> list[str]:
    facts = {
        "dtype": tensor.dtype,
        "stride": list(tensor.stride) if tensor.stride is not None else None,
        "device": tensor.device,
        "layout": tensor.layout,
        "class": tensor.tensor_class,
        "role": tensor.role,
        "version": tensor.version,
        "storage": tensor.storage,
        "offset": tensor.offset,
        "requires_grad": tensor.requires_grad,
        "partial": tensor.partial,
    }
    return [f"{name} {value}" for name, value in facts.items() if value is not None]


def _statistic(value: float) -> str:
    return str(value) if isinstance(value, int) else number(value)


def _wrapped(parts: Sequence[str]) -> Iterator[Text]:
    """Parts between commas on lines of WIDTH, none taken apart."""
    said = ""
    for part in parts:
        if said and len(said) + 5 + len(part) > WIDTH:
            yield line(f"  {said},")
            said = ""
        said = f"{said}, {part}" if said else part
    if said:
        yield line(f"  {said}")


def _is_troubled(stats: Mapping[str, Any]) -> bool:
    return any(stats.get(column) for column in ("nan", "pos_inf", "neg_inf"))


def value_place(tensor: Tensor, folders: Mapping[int, str]) -> str | None:
    """Where a tensor's values lie, below the run: file, and the key in it; None when they were not
    kept.

    folders has the folder of a process's shards; a foreign dump has none, its files are named from
    its own root.
    """
    if tensor.value is None:
        return None
    file = PurePosixPath(folders.get(tensor.process, ""), tensor.value.shard)
    return f"{file} {tensor.value.key}".rstrip()
