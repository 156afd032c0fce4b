# SPDX-License-Identifier: Apache-2.0
"""Synthetic runs of a million calls and more, by the store's own writer; made from columns, a
million calls in seconds.

A run is a program that is a loop: in each step the same calls, each reading what the last one
wrote, a tensor of its own that nobody produced where `fresh`, and a weight. What differs between
two runs is said by a Form.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nanoarrow.c_array import c_array_from_buffers

from opscope.run.arrow import NUMBERS, arrow_schema, encode_column, table_schema
from opscope.run.schema import TABLES
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter

OPERATORS = ("aten::mm.default", "aten::gelu.default", "aten::add.Tensor")
ARGUMENTS = '{"args": [{"tensor": "0"}, {"tensor": "1"}], "kwargs": {}}'
ROWS = 3  # of a call: two inputs and an output
BATCH = 20_000  # calls


@dataclass(frozen=True)
class Form:
    """How a run looks.

    off: relative error of every tensor, of its own in each row where `apart`; digest: whether there
    are digests; step: calls of a step; fresh: each call reads a tensor that no recorded call
    produced; wide: columns of every tensor are so many more; nan: the call from which on everything
    is NaN; named: operators of their own names in so many kinds; scalar: an argument of each call.
    """

    off: float = 0.0
    digest: bool = True
    step: int = 1000
    fresh: bool = False
    wide: int = 0
    nan: int | None = None
    named: str = ""
    scalar: bool = False
    modules: int = 50


def write_large(path: Path, calls: int, form: Form) -> Path:
    """A run of so many calls at a path that does not exist."""
    run = create_run(path, command=sys.argv)
    writer = ProcessWriter(run, process_facts(), keep=None)
    for first in range(0, calls, BATCH):
        index = np.arange(first, min(first + BATCH, calls))
        for table, columns in (
            ("calls", _calls(index, form)),
            ("tensors", _tensors(np.repeat(index, ROWS), form)),
        ):
            writer.append(
                table,
                _encoded(table, columns, len(columns["index"])),
                step=int(index[-1]) // form.step,
            )
    writer.close(0)
    seal_run(run)
    return path


def _calls(index: np.ndarray[Any, Any], form: Form) -> dict[str, Any]:
    place = index % form.step
    module = (place * form.modules // form.step).tolist()
    op = [OPERATORS[one] + form.named for one in (place % len(OPERATORS)).tolist()]
    args = [
        ARGUMENTS.replace('"kwargs"', f'"value": {one}, "kwargs"') if form.scalar else ARGUMENTS
        for one in index.tolist()
    ]
    names = [
        f"blocks.{path}:{name[6:].partition('.')[0]}#{at}"
        for path, name, at in zip(module, op, place.tolist(), strict=True)
    ]
    return {
        "process": 0,
        "rank": 0,
        "step": index // form.step,
        "index": index,
        "level": "operator",
        "phase": "forward",
        "op": op,
        "module": [f"blocks.{one}" for one in module],
        "name": names,
        "source": "/home/me/train.py:42",
        "args": args,
    }


def _tensors(index: np.ndarray[Any, Any], form: Form) -> dict[str, Any]:
    count, slot = len(index), np.arange(len(index)) % ROWS
    output = slot == ROWS - 1
    weight = -(index % form.step * form.modules // form.step) - 2 + (1 << 40)
    other = index + (1 << 41) if form.fresh else weight
    version = np.where(output, index + 1, np.where(slot == 0, index, other))
    content = 1.0 + _noise(version) + form.off * (_noise(version * 2) - 0.5)
    bad = (
        np.zeros(count, dtype=np.int64)
        if form.nan is None
        else np.where((index + output > form.nan) & (slot != 1), 7, 0)
    )
    columns: dict[str, Any] = {
        "process": 0,
        "index": index,
        "io": np.where(output, "output", "input").tolist(),
        "slot": np.where(slot == 1, "1", "0").tolist(),
        "version": version,
        "storage": version,
        "offset": 0,
        "dtype": "float32",
        "shape": (8, 128, 256 + form.wide),
        "stride": (128 * (256 + form.wide), 256 + form.wide, 1),
        "device": "cpu",
        "requires_grad": True,
        "size": 8 * 128 * (256 + form.wide),
        "nan": bad,
        "pos_inf": 0,
        "neg_inf": 0,
        "zero": 3,
        "neg": 131_072,
        "pos": 131_069,
        "near_limit": 0,
        "min": -4 * content,
        "max": 4.25 * content,
        "mean": 0.01 * content,
        "l2norm": 512.0 * content,
    }
    return columns | ({"digest": content.view(np.uint64)} if form.digest else {})


def _noise(seed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A number from 0 to 1 for each seed, the same in every run."""
    return (seed.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) / 2.0**24


def _encoded(table: str, columns: dict[str, Any], length: int) -> Any:
    """Columns as a struct array: NumPy arrays as they are, lists, one value for all rows; those
    that are not given are null.
    """
    children = []
    for name, kind in TABLES[table].items():
        given = columns.get(name)
        if isinstance(given, np.ndarray):
            children.append(
                c_array_from_buffers(
                    arrow_schema(kind), length, [None, given.astype(NUMBERS[kind])], null_count=0
                )
            )
        else:
            children.append(
                encode_column(kind, given if isinstance(given, list) else [given] * length)
            )
    return c_array_from_buffers(
        table_schema(table), length, [None], null_count=0, children=children
    )
