# SPDX-License-Identifier: Apache-2.0
"""`opscope-msaccucmp compare -op NAME -o N`: the elements of one tensor beside their ground truth,
in pages of CSV.

{op}_{output|input}_{N}_{first line}.csv  Index, coordinates, NPUDump, GroundTruth, AbsoluteError,
                                          RelativeError
… _absolute_error_topn.csv, _relative_error_topn.csv, _summary.txt
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from opscope.arrays import Array
from opscope.cli.printing import say
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.cann.names import sanitised
from opscope.narrow import widened

if TYPE_CHECKING:
    from opscope.formats.cann.compare import Golden, Side
    from opscope.formats.cann.fusion import Graph

_EPS = 2.220446049250313e-16


def one_tensor(
    options: argparse.Namespace, mine: Path, golden: Golden, graph: Graph | None, out: Path
) -> int:
    """Write the pages, the largest errors and the summary of one tensor; answers the exit code.
    Raises RefusedError.
    """
    io, number = (
        ("input", options.input) if options.input is not None else ("output", options.output or 0)
    )
    if not 1 <= options.top <= 10_000 or not 10_000 <= options.lines <= 1_000_000 or number < 0:
        raise RefusedError(
            Code.PARAMETER, "-n is 1 to 10000, -ml 10000 to 1000000, and an index a natural number"
        )
    sides = _find(options.op, (io, number), mine, golden, graph)
    if (
        sides[0].values.shape != sides[1].values.shape
        and sides[0].values.size != sides[1].values.size
    ):
        raise RefusedError(
            Code.SHAPE,
            f"{options.op}:{io}:{number} is {sides[0].values.shape}, its ground truth "
            f"{sides[1].values.shape}",
        )
    table = _Table(sides[0], sides[1])
    stem = f"{options.op.replace('/', '_')}_{io}_{number}"
    written = _write(table, out, stem, options)
    say(f"{table.size} elements of {options.op}:{io}:{number} compared; {written} files in {out}")
    return int(Code.OK)


def _find(
    name: str, which: tuple[str, int], mine: Path, golden: Golden, graph: Graph | None
) -> tuple[Side, Side]:
    from opscope.formats.cann.compare import operators_in, read_side, wanted

    root = mine if mine.is_dir() else mine.parent
    operator = next(
        (one for one in operators_in(mine) if sanitised(one.name) == sanitised(name)), None
    )
    if operator is None:
        raise RefusedError(
            Code.NO_DUMP_FILE, f"{name}: no dump of an operator of this name in {mine}"
        )
    own = read_side(root / operator.first.path, *which)
    if own is None:
        raise RefusedError(Code.INDEX, f"{name}: it has no {which[0]} {which[1]}")
    golden_name, number, io = wanted(operator.name, *which, golden, graph)
    other = golden.find(golden_name, io, number, 0)
    if other is None:
        raise RefusedError(
            Code.NO_DUMP_FILE, f"{name}:{which[0]}:{which[1]}: there is no ground truth of it"
        )
    return own, other


class _Table:
    """Both sides flat, with absolute and relative errors; a relative error is 0 where the ground
    truth is.
    """

    def __init__(self, mine: Side, golden: Side) -> None:
        self.shape = mine.values.shape
        self.mine, self.golden = (
            np.real(widened(side.values).reshape(-1)).astype(np.float64) for side in (mine, golden)
        )
        self.size = self.mine.size
        with np.errstate(all="ignore"):
            self.absolute = np.abs(self.mine - self.golden)
            known = np.abs(self.golden) > _EPS
            self.relative = np.where(
                known, self.absolute / np.where(known, np.abs(self.golden), 1.0), 0.0
            )

    @property
    def coordinates(self) -> str:
        """Name of the column of coordinates."""
        if len(self.shape) <= 1 and self.size == 1:
            return "ID"
        return {4: "N C H W", 5: "N C D H W"}.get(len(self.shape), "ID")

    def line(self, number: int) -> list[str]:
        """One element as cells."""
        where = (
            " ".join(str(int(i)) for i in np.unravel_index(number, self.shape))
            if len(self.shape) in (4, 5)
            else str(number)
        )
        values = (
            self.mine[number],
            self.golden[number],
            self.absolute[number],
            self.relative[number],
        )
        return [str(number), where, *(_cell(float(value)) for value in values)]

    def largest(self, errors: Array, count: int) -> list[int]:
        """Places of the largest errors, the largest first."""
        known = np.nan_to_num(errors, nan=np.inf)
        numbers: list[int] = np.argsort(-known, kind="stable")[:count].tolist()
        return numbers


def _cell(value: float) -> str:
    return f"{value:.6f}\t" if np.isfinite(value) else "-"


def _write(table: _Table, out: Path, stem: str, options: argparse.Namespace) -> int:
    header = [
        "Index",
        table.coordinates,
        "NPUDump",
        "GroundTruth",
        "AbsoluteError",
        "RelativeError",
    ]
    written = 0
    for first in range(0, 0 if options.ignore else table.size, options.lines):
        _page(
            out / f"{stem}_{first}.csv",
            header,
            (table.line(number) for number in range(first, min(first + options.lines, table.size))),
        )
        written += 1
    for name, errors in (("absolute", table.absolute), ("relative", table.relative)):
        _page(
            out / f"{stem}_{name}_error_topn.csv",
            header,
            (table.line(number) for number in table.largest(errors, options.top)),
        )
    lines = [
        f"TotalCount:{table.size}",
        f"NPUDump:{options.op}",
        f"GroundTruth:{options.golden}",
        f"Format:{table.coordinates}",
    ]
    for name, errors in (("Absolute", table.absolute), ("Relative", table.relative)):
        finite = errors[np.isfinite(errors)]
        for word, reduce in (("Min", np.min), ("Max", np.max)):
            lines.append(
                f"{word}{name}Error:{f'{float(reduce(finite)):.6f}' if finite.size else '-'}"
            )
    (out / f"{stem}_summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return written + 3


def _page(path: Path, header: list[str], rows: Iterator[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
