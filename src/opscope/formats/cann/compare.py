# SPDX-License-Identifier: Apache-2.0
"""Dump files of a device beside their ground truth, tensor by tensor: the rows of the manuals'
result_{time}.csv.

Ground truth is a directory of .npy files ({name}.{output}.{timestamp}.npy, names as in file names),
or of dump files again. With a graph (fusion.py) an input's ground truth is the output of its
producer; without one, npy files serve outputs only. Operators of two dumps are joined by name and
by their rank in time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import OpscopeError
from opscope.formats.cann import algorithms, dumpfile, tensor, tree
from opscope.formats.cann.algorithms import Answer
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.cann.fusion import has_true
from opscope.formats.cann.names import sanitised
from opscope.formats.npy import read_npy
from opscope.narrow import widened
from opscope.run.dtypes import dtype_of_numpy

if TYPE_CHECKING:
    from opscope.formats.cann.fusion import Graph

ABSENT = "*"
_NPY = re.compile(r"(.+)\.(\d{1,9})\.(\d{1,20})\.npy", re.ASCII | re.DOTALL)
_HALF_LIMIT = 65504.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor: texts of the cells that every table has, and the answers of the algorithms."""

    index: int
    op_type: str
    mine: str
    mine_dtype: str
    mine_address: str
    golden: str
    golden_dtype: str
    golden_address: str
    tensor_index: str
    shape: str
    overflow: str
    answers: tuple[Answer, ...]
    reason: str
    mine_path: str
    golden_path: str


class Side(msgspec.Struct, frozen=True):
    """One tensor of one side: where it lies, its elements on the host, its device address where it
    has one.
    """

    path: str
    values: Array
    address: str = "NaN"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to compare: algorithms by number, at most so many elements, operators by place (None:
    all), looking for overflow, and algorithms of the user's own by name.
    """

    algorithms: tuple[int, ...] = tuple(range(len(algorithms.NAMES)))
    most: int | None = None
    places: frozenset[int] | None = None
    overflow: bool = False
    own: tuple[tuple[str, Callable[[Array, Array], Answer]], ...] = ()

    @property
    def columns(self) -> int:
        """How many algorithms answer."""
        return len(self.algorithms) + len(self.own)


class NumpyGolden:
    """Ground truth in .npy files; of several timestamps of one output the latest."""

    npy = True

    def __init__(self, directory: Path) -> None:
        self.files: dict[tuple[str, int], tuple[int, Path]] = {}
        for path in directory.iterdir():
            match = _NPY.fullmatch(path.name)
            if match is not None:
                key, entry = (sanitised(match[1]), int(match[2])), (int(match[3]), path)
                self.files[key] = max(self.files.get(key, entry), entry)

    def find(self, name: str, io: str, index: int, _rank: int) -> Side | None:
        """Values of an output; inputs have none here."""
        entry = self.files.get((sanitised(name), index)) if io == "output" else None
        return None if entry is None else Side(str(entry[1]), read_npy(entry[1]))


class DumpGolden:
    """Ground truth in dump files of another run."""

    npy = False

    def __init__(self, directory: Path) -> None:
        self.root = directory if directory.is_dir() else directory.parent
        self.ops: dict[str, list[tree.Operator]] = defaultdict(list)
        for operator in _in_time(tree.read(directory).operators):
            self.ops[sanitised(operator.name)].append(operator)

    def find(self, name: str, io: str, index: int, rank: int) -> Side | None:
        """Values of an input or output of the operator that is this name's rank-th in time."""
        runs_of_it = self.ops.get(sanitised(name), ())
        if rank >= len(runs_of_it):
            return None
        return read_side(self.root / runs_of_it[rank].first.path, io, index)


Golden = NumpyGolden | DumpGolden


def golden_in(path: Path) -> Golden:
    """What kind of ground truth a directory holds. Raises RefusedError for one that holds none."""
    if not path.exists():
        raise RefusedError(Code.PATH, f"{path}: no such file or directory")
    if path.is_dir() and any(_NPY.fullmatch(entry.name) for entry in path.iterdir()):
        return NumpyGolden(path)
    golden = DumpGolden(path)
    if not golden.ops:
        raise RefusedError(
            Code.NO_DUMP_FILE,
            f"{path}: neither dump files nor .npy files NAME.OUTPUT.TIMESTAMP.npy in it",
        )
    return golden


def read_side(path: Path, io: str, index: int) -> Side | None:
    """One tensor of a dump file in host order; None where the file has no such tensor."""
    file = dumpfile.read(path)
    entries = tensor.tensors(file, io)
    if index >= len(entries):
        return None
    seen = tensor.view(file, io, index)
    address = entries[index].address
    return Side(
        str(path),
        tensor.host(tensor.device(file, io, index, seen), seen),
        str(address) if address else "NaN",
    )


def operators_in(path: Path) -> list[tree.Operator]:
    """Operators of a dump in the order of time. Raises RefusedError where there are none."""
    if not path.exists():
        raise RefusedError(Code.PATH, f"{path}: no such file or directory")
    operators = _in_time(tree.read(path).operators)
    if not operators:
        raise RefusedError(Code.NO_DUMP_FILE, f"{path}: no dump file in it")
    return operators


def _in_time(operators: Sequence[tree.Operator]) -> list[tree.Operator]:
    return sorted(
        operators, key=lambda operator: (operator.first.name.timestamp, operator.first.path)
    )


def compare(mine: Path, golden: Golden, graph: Graph | None, settings: Settings) -> Iterator[Row]:
    """A row for each tensor of each operator that is asked for, in the order of time."""
    ranks: dict[str, int] = defaultdict(int)
    root = mine if mine.is_dir() else mine.parent
    for index, operator in enumerate(operators_in(mine), 1):
        name = operator.name
        rank = ranks[name]
        ranks[name] += 1
        if settings.places is None or index in settings.places:
            yield from _operator(
                root / operator.first.path, (index, operator, rank), golden, graph, settings
            )


def _operator(
    path: Path,
    which: tuple[int, tree.Operator, int],
    golden: Golden,
    graph: Graph | None,
    settings: Settings,
) -> Iterator[Row]:
    _, operator, rank = which
    if len(operator.sources) > 1:
        reason = (
            f"it was dumped in {len(operator.sources)} slices (FFTS+), which this table does "
            "not join; opscope compare does"
        )
        yield _row(which, ("output", 0), (None, None), (ABSENT, (), reason), settings)
        return
    try:
        file = dumpfile.read(path)
    except OpscopeError as error:
        yield _row(which, ("output", 0), (None, None), (ABSENT, (), str(error)), settings)
        return
    fused = graph.ops.get(sanitised(operator.name)) if graph is not None else None
    for io in ("input", "output"):
        if fused is not None and not has_true(fused, io):
            continue
        for number in range(len(tensor.tensors(file, io))):
            name, at, side = wanted(operator.name, io, number, golden, graph)
            sides, reasons = _both(path, (io, number), (name, at, side, rank), golden)
            if sides[0] is None and sides[1] is None and not reasons:
                continue
            answers = _answers(sides, settings)
            yield _row(which, (io, number), sides, (name, answers, reasons), settings)


def wanted(
    name: str, io: str, number: int, golden: Golden, graph: Graph | None
) -> tuple[str, int, str]:
    """Name, number and side of the ground truth of a tensor; ABSENT where there cannot be one."""
    if graph is None:
        return (name, number, io) if io == "output" or not golden.npy else (ABSENT, number, io)
    origin = graph.golden_of(name, io, number)
    return (
        (ABSENT, number, io)
        if origin is None or origin.name is None
        else (origin.name, origin.index, "output")
    )


def _both(
    path: Path, tensor_at: tuple[str, int], sought: tuple[str, int, str, int], golden: Golden
) -> tuple[tuple[Side | None, Side | None], str]:
    """Both sides of a tensor, and why one is missing."""
    sides: list[Side | None] = [None, None]
    reasons = []
    name, number, io, rank = sought
    try:
        sides[0] = read_side(path, *tensor_at)
    except OpscopeError as error:
        reasons.append(str(error))
    try:
        sides[1] = None if name == ABSENT else golden.find(name, io, number, rank)
    except OpscopeError as error:
        reasons.append(str(error))
    if sides[1] is None and not reasons:
        reasons.append(
            f"there is no ground truth of {name}:{io}:{number}"
            if name != ABSENT
            else "this operator or input has no ground truth"
        )
    return (sides[0], sides[1]), " ".join(reasons)


def _answers(sides: tuple[Side | None, Side | None], settings: Settings) -> tuple[Answer, ...]:
    mine, golden = sides
    if mine is None or golden is None:
        return (Answer(algorithms.NAN),) * settings.columns
    known = algorithms.compute(mine.values, golden.values, settings.algorithms, most=settings.most)
    return (
        *known,
        *(
            _own(algorithm, mine.values, golden.values, settings.most)
            for _, algorithm in settings.own
        ),
    )


def _own(
    algorithm: Callable[[Array, Array], Answer], mine: Array, golden: Array, most: int | None
) -> Answer:
    if mine.size != golden.size or not mine.size:
        return Answer(algorithms.NAN)
    return algorithm(mine.reshape(-1)[:most], golden.reshape(-1)[:most])


def _row(
    which: tuple[int, tree.Operator, int],
    tensor_at: tuple[str, int],
    sides: tuple[Side | None, Side | None],
    told: tuple[str, tuple[Answer, ...], str],
    settings: Settings,
) -> Row:
    index, operator, _ = which
    mine, golden = sides
    name, answers, reasons = told
    return Row(
        index=index,
        op_type=operator.first.name.op_type,
        mine=operator.name,
        mine_dtype=_dtype(mine),
        mine_address=_address(mine),
        golden=name if golden is not None else ABSENT,
        golden_dtype=_dtype(golden),
        golden_address=_address(golden),
        tensor_index=f"{operator.name}:{tensor_at[0]}:{tensor_at[1]}",
        shape="[]" if mine is None else f"[{','.join(map(str, mine.values.shape))}]",
        overflow=_overflow(mine)
        if settings.overflow and tensor_at[0] == "output"
        else "NO"
        if settings.overflow
        else "",
        answers=answers or (Answer(algorithms.NAN),) * settings.columns,
        reason=" ".join(part for part in (reasons, algorithms.reasons(list(answers))) if part),
        mine_path="" if mine is None else mine.path,
        golden_path="" if golden is None else golden.path,
    )


def _dtype(side: Side | None) -> str:
    return "NaN" if side is None else dtype_of_numpy(side.values.dtype).name


def _address(side: Side | None) -> str:
    return "NaN" if side is None else side.address


def _overflow(side: Side | None) -> str:
    """YES where an output holds NaN, infinity or, of float16, the largest finite number."""
    if side is None or not side.values.size:
        return "NO"
    if side.values.dtype.kind in "biu":
        return "NO"
    wide = np.complex128 if side.values.dtype.kind == "c" else np.float64
    values = widened(side.values).astype(wide)
    reached = side.values.dtype == np.float16 and bool((np.abs(values) >= _HALF_LIMIT).any())
    return "YES" if reached or not np.isfinite(values).all() else "NO"
