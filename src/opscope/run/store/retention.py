# SPDX-License-Identifier: Apache-2.0
"""What stays on disk: --keep, the segments of a table, and the extremes that old steps shrink to.

With --keep last:N the tables calls and tensors are written in segments of N/4 steps, so that old
steps can be deleted as files. A segment goes when every step in it is older than the last N and
none had a finding; before it goes, its extremes
are added to extremes.arrow: one row for each operator, module and phase over a range of steps. At
most MAX_RANGES ranges are kept; when there are more, neighbours are merged, so the file is bounded
however long the run is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from opscope.errors import UsageError

MAX_RANGES = 16
STEP_CALLS = 20_000
EXTREMES_TYPES: dict[str, str] = {
    "process": "int32",
    "rank": "int32",
    "first_step": "int32",
    "last_step": "int32",
    "op": "string",
    "module": "string",
    "phase": "string",
    "calls": "int64",
    "min": "float64",
    "max": "float64",
    "nan": "int64",
    "pos_inf": "int64",
    "neg_inf": "int64",
    "near_limit": "int64",
}


class Extremes(msgspec.Struct, frozen=True):
    """What one operator did over a range of steps; min and max over the finite elements of its
    outputs and inputs.
    """

    calls: int = 0
    min: float | None = None
    max: float | None = None
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    near_limit: int = 0

    def merged(self, other: Extremes) -> Extremes:
        """Both together."""
        return Extremes(
            self.calls + other.calls,
            _pick(min, self.min, other.min),
            _pick(max, self.max, other.max),
            self.nan + other.nan,
            self.pos_inf + other.pos_inf,
            self.neg_inf + other.neg_inf,
            self.near_limit + other.near_limit,
        )


Operator = tuple[str, "str | None", str]  # op, module, phase


class Range(msgspec.Struct, frozen=True):
    """The extremes of every operator over the steps first to last."""

    first: int
    last: int
    operators: dict[Operator, Extremes]

    def merged(self, other: Range) -> Range:
        """Both ranges as one."""
        operators = dict(self.operators)
        for operator, extremes in other.operators.items():
            operators[operator] = (
                operators[operator].merged(extremes) if operator in operators else extremes
            )
        return Range(min(self.first, other.first), max(self.last, other.last), operators)


def _pick(choose: Any, a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else choose(a, b)


def add_range(ranges: list[Range], new: Range) -> list[Range]:
    """The ranges with one more, neighbours merged in pairs when there are more than MAX_RANGES."""
    ranges = [*ranges, new]
    if len(ranges) <= MAX_RANGES:
        return ranges
    pairs = [ranges[i : i + 2] for i in range(0, len(ranges), 2)]
    return [pair[0] if len(pair) == 1 else pair[0].merged(pair[1]) for pair in pairs]


def extremes_columns(ranges: Iterable[Range], *, process: int, rank: int) -> list[list[Any]]:
    """Columns of extremes.arrow, in the order of EXTREMES_TYPES."""
    rows = [
        (process, rank, item.first, item.last, *operator, *msgspec.structs.astuple(extremes))
        for item in ranges
        for operator, extremes in item.operators.items()
    ]
    return (
        [list(column) for column in zip(*rows, strict=True)]
        if rows
        else [[] for _ in EXTREMES_TYPES]
    )


def parse_keep(text: str) -> int | None:
    """Steps that --keep names: last:N gives N, all gives None; UsageError for anything else."""
    if text.strip().lower() == "all":
        return None
    match = re.fullmatch(r"\s*last:([0-9]{1,9})\s*", text, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise UsageError(f"--keep {text!r}: write last:N with N at least 1, or all")
    return int(match[1])


class Segment:
    """Which steps one segment of the tables holds, how many rows of each, and which shards these
    point into.

    A step of more than STEP_CALLS calls counts as several: a program that ends no step is bounded
    too.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps: set[int] = set()
        self.ended = 0
        self.finding = False
        self.shards: set[str] = set()
        self.rows: dict[str, int] = {}


def outdated(segments: Iterable[Segment], *, last_step: int, keep: int) -> list[Segment]:
    """Closed segments that hold no step worth keeping."""
    return [s for s in segments if not s.finding and max(s.steps, default=-1) <= last_step - keep]
