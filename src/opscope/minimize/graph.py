# SPDX-License-Identifier: Apache-2.0
"""A repro folder of what a compiler makes wrongly -> a smaller one: fewer outputs, calls, elements,
rounder values.

Each candidate is compiled and judged as `run --check` does, by a process of its own; a difference
that rounding explains is none.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.minimize.graph_part import (
    GraphPart,
    entries_of,
    lengths,
    load_graph_part,
    size_of_part,
    with_given,
    with_length,
    with_number,
    with_outputs,
    with_values,
    without_node,
)
from opscope.minimize.minimized import Limits, Minimized
from opscope.minimize.search import OutOfTime, Search
from opscope.minimize.simplify import all_of
from opscope.narrow import as_type, widened
from opscope.repro.ddmin import ddmin
from opscope.repro.graph import Element, Part, graph_script, write_window
from opscope.repro.runner import Outcome, execute
from opscope.repro.tensorfile import read_tensors
from opscope.repro.worker import Trial, Worker
from opscope.repro.write import free_folder, save
from opscope.run.dtypes import dtype_of
from opscope.run.progress import Progress, nobody

Shortened = Callable[[GraphPart, int, int], Sequence[GraphPart | None]]
VALUES = "values.safetensors"
COMPILING = 120.0  # seconds that compiling a part may take at least
FEW = 1 << 12  # elements of a memory of which the telling ones are looked for
GRADE = 2.0  # times what rounding explains, at least, where the first case has it


class GraphOracle:
    """Tries parts of a graph. Used as a with-block, which ends the process."""

    def __init__(self, *, imports: Sequence[str], limit: float, python: str | None) -> None:
        self.trials = 0
        self.first: Trial | None = None
        self.last: Trial | None = None
        self._limit = max(limit, COMPILING)
        self._folder = Path(tempfile.mkdtemp(prefix="opscope-minimize-"))
        script = self._folder / "repro_graph.py"
        script.write_text(graph_script(), encoding="utf-8")
        worker = Path(__file__).with_name("graph_worker.py")
        self._worker = Worker(worker, script, imports, clean=False, python=python)

    def __enter__(self) -> GraphOracle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def make(self, part: GraphPart) -> Trial:
        """Compile a part and judge what comes of it."""
        self.trials += 1
        return self._ask("judge", part)

    def fails(self, part: GraphPart) -> Trial | None:
        """The trial, where a part deviates as the first one did: by as clear a margin, to numbers
        that are finite or not as they were.
        """
        trial = self.last = self.make(part)
        if self.first is None or not trial.shown:
            return None
        alike = _finite(trial) == _finite(self.first)
        return trial if alike and trial.grade >= min(GRADE, self.first.grade) else None

    def values(self, part: GraphPart) -> dict[str, tuple[Array, str]]:
        """What each call of a part makes, and its type."""
        trial = self._ask("values", part)
        if trial.status != "done":
            return {}
        stored = read_tensors(self._folder / VALUES)
        return {
            name: (stored.array(name, row["dtype"], tuple(row["shape"])), row["dtype"])
            for name, row in trial.seen.items()
        }

    def _ask(self, what: str, part: GraphPart) -> Trial:
        write_window(part.window, entries_of(part), self._folder)
        return self._worker.ask({"asked": what, "folder": str(self._folder)}, self._limit)


def minimize_graph(  # noqa: PLR0913 - options of a search, each by its name
    directory: Path,
    output: Path,
    *,
    imports: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - frozen
    python: str | None = None,
    tell: Callable[[str], None] = lambda line: None,  # noqa: ARG005
    progress: Progress = nobody,
) -> Minimized:
    """Shrink the part of a repro folder while it deviates when it is compiled, and write it to
    output.

    Options and errors are those of minimize.
    """
    start = load_graph_part(directory)
    with GraphOracle(imports=imports, limit=limits.call, python=python) as oracle:
        first = oracle.make(start)
        if not first.shown:
            return Minimized(directory=None, shown=0, tried=1, told=first.told or first.status)
        oracle.first = first
        tell(f"{start.window.backend}: {first.told}")
        search = Search(oracle, start, first, seconds=limits.search, tell=tell, progress=progress)
        ended = _shrink(search, oracle)
        trials = oracle.trials
    trial = partial(execute, repeat=2, imports=imports, python=python)
    written, best, outcome = _written((_witnessed(search.best, search.trial), start), output, trial)
    return Minimized(
        directory=str(written),
        shown=1,
        tried=1,
        told=search.trial.told,
        ended=ended,
        trials=trials,
        before=size_of_part(start),
        after=size_of_part(best),
        outcome=outcome,
    )


def _written(
    parts: Sequence[GraphPart], output: Path, trial: Callable[[Path], Outcome]
) -> tuple[Path, GraphPart, Outcome]:
    """Write the first of these parts that fails in a fresh process too, else the last."""
    for part in parts:
        folder = free_folder(output)
        save(Part(folder.name, part.window, entries_of(part)), folder)
        outcome = trial(folder)
        if outcome.exit_code == 1 or part is parts[-1]:
            break
        shutil.rmtree(folder)
    return folder, part, outcome


def _shrink(search: Search[GraphPart], oracle: GraphOracle) -> str:
    """Run the stages until nothing gives; how it ended."""
    try:
        _fewer_outputs(search)
        _fewer_calls(search, oracle)
        _shorter(search)
        _rounder(search)
    except OutOfTime:
        return "time"
    except KeyboardInterrupt:
        return "interrupted"
    return "done"


def _fewer_outputs(search: Search[GraphPart]) -> None:
    """One output where one is enough; then without those that can be left out."""
    outputs = search.best.window.outputs
    if len(outputs) > 1 and not any(
        search.keeps(with_outputs(search.best, [name])) for name in outputs
    ):
        for name in outputs:
            rest = [each for each in search.best.window.outputs if each != name]
            search.keeps(with_outputs(search.best, rest) if rest else None)


def _fewer_calls(search: Search[GraphPart], oracle: GraphOracle) -> None:
    """Without calls that nothing is used of, and with what others made given."""
    for node in reversed(search.best.window.nodes):
        search.keeps(without_node(search.best, node.name))
    values = oracle.values(search.best)
    for node in search.best.window.nodes[:-1]:
        if node.name in values:
            search.keeps(with_given(search.best, node.name, *values[node.name]))
        for other in reversed(search.best.window.nodes):
            search.keeps(without_node(search.best, other.name))
    _tell_size(search)


def _shorter(search: Search[GraphPart]) -> None:
    """Shorter dimensions: all of one length together, then axis by axis."""
    for old in sorted({length for length, _ in lengths(search.best)}, reverse=True):
        _shorter_by(search, old, _everywhere)
    for old, axis in lengths(search.best):
        _shorter_by(search, old, partial(_along, axis))
    _tell_size(search)


def _shorter_by(search: Search[GraphPart], old: int, made: Shortened) -> None:
    """As short as a length may become, of what is made of it."""
    length = old
    for new in _shorter_lengths(old):
        if new < length and any(map(search.keeps, made(search.best, length, new))):
            length = new
            if new < old // 2:
                return


def _everywhere(part: GraphPart, old: int, new: int) -> list[GraphPart | None]:
    """With a shorter length, and with that in the place of the number among arguments too."""
    made = with_length(part, old, new)
    return [made, with_number(made, old, new)]


def _along(axis: int, part: GraphPart, old: int, new: int) -> list[GraphPart | None]:
    return [with_length(part, old, new, axis)]


def _shorter_lengths(old: int) -> Iterator[int]:
    """What is tried in the place of a length: the smallest, then halves of it."""
    yield from (1, 2)
    new = old
    while (new := new // 2) > 2:
        yield new
    if old > 4:
        yield old - 1


def _rounder(search: Search[GraphPart]) -> None:
    """Zeros, ones and round numbers where they do as well."""
    for memory_number in range(len(search.best.memories)):
        values = search.best.memories[memory_number]
        if any(search.keeps(_filled(search.best, memory_number, value)) for value in (0, 1)):
            continue
        if values.size <= FEW:
            _keep_few(search, memory_number)
        if dtype_of(search.best.window.memories[memory_number].dtype).kind == "float":
            _round(search, memory_number)
    _tell_size(search)


def _keep_few(search: Search[GraphPart], memory_number: int) -> None:
    """All but the telling elements of a memory 0."""
    whole = search.best.memories[memory_number]

    def fails(kept: list[int]) -> bool:
        made = np.zeros_like(whole)
        made[kept] = whole[kept]
        return search.keeps(with_values(search.best, memory_number, made))

    ddmin([int(each) for each in np.flatnonzero(widened(whole))], fails, finest=64)


def _round(search: Search[GraphPart], memory_number: int) -> None:
    for digits in range(3):
        values = search.best.memories[memory_number]
        made = as_type(np.round(widened(values).astype(np.float64), digits), values.dtype)
        if search.keeps(with_values(search.best, memory_number, made)):
            return


def _filled(part: GraphPart, memory_number: int, value: int) -> GraphPart | None:
    return with_values(part, memory_number, all_of(part.memories[memory_number], value))


def _witnessed(part: GraphPart, trial: Trial) -> GraphPart:
    """The part with the element that deviates in it."""
    witness = msgspec.convert(trial.seen["witness"], Element)
    return GraphPart(msgspec.structs.replace(part.window, witness=witness), part.memories)


def _tell_size(search: Search[GraphPart]) -> None:
    """Say how far the search has come."""
    size = size_of_part(search.best)
    shapes = ", ".join(f"{name}{list(shape)}" for name, shape in size.shapes.items())
    search.tell(f"{len(search.best.window.nodes)} calls, {size.elements} elements: {shapes}")


def _finite(trial: Trial) -> bool:
    return math.isfinite(float(trial.seen["witness"]["got"]))
