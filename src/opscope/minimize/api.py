# SPDX-License-Identifier: Apache-2.0
"""A repro folder -> a smaller one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.minimize.candidate import Candidate, load_candidate, material, settled, size_of
from opscope.minimize.graph import minimize_graph
from opscope.minimize.minimized import Limits, Minimized
from opscope.minimize.oracle import Oracle
from opscope.minimize.search import SECONDS, OutOfTime, Search
from opscope.minimize.shrink_shapes import shrink_shapes
from opscope.minimize.simplify import (
    free_memory,
    plain_arguments,
    plain_strides,
    shrink_values,
    usual_type,
)
from opscope.repro.case import CaseOutput, CaseTensor, Failure, read_case
from opscope.repro.graph import GRAPH
from opscope.repro.issue import write_issue
from opscope.repro.runner import Outcome, execute
from opscope.repro.worker import Trial
from opscope.repro.write import SCRIPT, free_folder, save
from opscope.run.progress import Progress, nobody

PROBES = 3
FEW = 16
Stage = tuple[Candidate, Trial]


def minimize(  # noqa: PLR0913 - options of a search, each by its name
    directory: Path,
    output: Path,
    *,
    imports: Sequence[str] = (),
    allowed: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - frozen
    python: str | None = None,
    tell: Callable[[str], None] = lambda line: None,  # noqa: ARG005
    progress: Progress = nobody,
) -> Minimized:
    """Shrink the case of a repro folder while the same failure (class, operator, error pattern)
    stays, and write it to output.

    Of the folder only data is read, none of its code runs. imports are libraries to load, those the
    case names among them; allowed are patterns of operators that are called though they may touch
    more than their tensors; python is an interpreter that has what this one lacks. Ctrl-C ends the
    search and keeps the best case so far. Raises FormatError for a folder that is none, UsageError
    when it holds no repro.py or names a library that was not given, UnavailableError when it cannot
    be tried here.
    """
    script = directory.absolute() / SCRIPT
    if not script.is_file():
        raise UsageError(f"{script} is not there; give a folder that opscope repro wrote")
    if (directory / GRAPH).is_file():
        return minimize_graph(
            directory,
            output,
            imports=imports,
            limits=limits,
            python=python,
            tell=tell,
            progress=progress,
        )
    start = load_candidate(directory)
    given = {Path(name).name for name in imports}  # a file may lie elsewhere by now
    unasked = [name for name in start.case.imports if Path(name).name not in given]
    if unasked:
        raise UsageError(
            f"{directory}: its case loads {unasked[0]}, which is code: give it with --import "
            "if you trust it"
        )
    start = msgspec.structs.replace(
        start, case=msgspec.structs.replace(start.case, imports=tuple(imports))
    )
    start = without_witnesses(start)
    progress(SECONDS, 0, int(limits.search))
    with Oracle(
        start, imports=tuple(imports), limit=limits.call, python=python, allowed=allowed
    ) as oracle:
        start, probes = _probe(oracle, start)
        shown = [trial for trial in probes if _shows(start.case.failure, trial)]
        if not shown:
            return Minimized(directory=None, shown=0, tried=len(probes), told=_why(probes[-1]))
        oracle.first, oracle.failure = shown[0], start.case.failure
        # A failure that comes and goes is asked for more often, so that it is not taken for gone.
        oracle.repeat = 1 if len(shown) == len(probes) else 4 * PROBES
        tell(
            f"{start.case.op}: the failure shows {len(shown)}/{len(probes)}: "
            f"{shown[0].told or shown[0].status}"
        )
        search = Search(
            oracle, start, shown[0], seconds=limits.search, tell=tell, progress=progress
        )
        ended, stages = _shrink(search)
        trials, limit = oracle.trials, oracle.patience.sure
    if start.case.failure.kind == "hang":
        stages = [(_limited(candidate, limit), trial) for candidate, trial in stages]
    best, outcome, written = _verified(stages, output, python, allowed)
    return Minimized(
        directory=str(written),
        shown=len(shown),
        tried=len(probes),
        told=search.trial.told,
        ended=ended,
        trials=trials,
        before=size_of(start),
        after=size_of(best),
        outcome=outcome,
    )


def without_witnesses(start: Candidate) -> Candidate:
    """The case without elements that a check knows to be wrong: they are of its inputs alone, not
    of a smaller case's.
    """
    failure = msgspec.structs.replace(start.case.failure, witnesses=())
    return msgspec.structs.replace(start, case=msgspec.structs.replace(start.case, failure=failure))


def _probe(oracle: Oracle, start: Candidate) -> tuple[Candidate, list[Trial]]:
    """The call as it is, a few times; where nothing was recorded as wrong but something is, that is
    the failure.
    """
    oracle.learn(start)
    first = oracle.make(start, patient=True)
    if start.case.failure.kind == "none":
        ended = {"died": "crash", "hang": "hang"}.get(first.status, "mismatch")
        start = msgspec.structs.replace(
            start, case=msgspec.structs.replace(start.case, failure=Failure(kind=ended))
        )
        oracle.failure = start.case.failure
    hung = first.status == "hang"  # each more costs the time in which nothing happens
    probes = [first, oracle.make(start)] if hung else [oracle.make(start) for _ in range(PROBES)]
    if not any(_shows(start.case.failure, trial) for trial in probes):
        oracle.threads = 0
        probes = [oracle.make(start) for _ in range(PROBES)]
    return start, probes


def _shows(failure: Failure, trial: Trial) -> bool:
    wanted = {"crash": "died", "hang": "hang"}.get(failure.kind, "done")
    return trial.status == wanted and (trial.shown > 0 or wanted != "done")


def _why(trial: Trial) -> str:
    if trial.status == "died":
        return (
            f"the process that makes the call ends by exit status {trial.code}, which is not the "
            "failure that was recorded"
        )
    if trial.status == "hang":
        return "the call does not return, which is not the failure that was recorded"
    return trial.told


def _shrink(search: Search[Candidate]) -> tuple[str, list[Stage]]:
    """Run the stages until nothing gives; how it ended, and the best candidate after each stage,
    the smallest last.
    """
    stages = [(search.best, search.trial)]
    try:
        for stage in _stages(search):
            before = search.best
            stage(search)
            if search.best is not before:
                stages.append((search.best, search.trial))
                search.tell(_progress(search))
        return "done", stages
    except OutOfTime:
        return "time", [*stages, (search.best, search.trial)]
    except KeyboardInterrupt:
        return "interrupted", [*stages, (search.best, search.trial)]


def _stages(search: Search[Candidate]) -> Iterator[Callable[[Search[Candidate]], object]]:
    yield free_memory
    for _ in range(4):
        before = size_of(search.best)
        yield from (shrink_shapes, shrink_values)
        after = size_of(search.best)
        if after.elements <= FEW or after.elements + after.telling > 0.8 * (
            before.elements + before.telling
        ):
            break
    before_rest = search.best
    yield from (plain_arguments, usual_type, plain_strides)
    if search.best is not before_rest and size_of(search.best).elements > FEW:
        yield from (shrink_shapes, shrink_values)


def _progress(search: Search[Candidate]) -> str:
    size = size_of(search.best)
    shapes = ", ".join(f"{slot}{list(shape)}" for slot, shape in size.shapes.items())
    return (
        f"{size.elements} elements, {size.telling} of them neither 0 nor 1, after "
        f"{search.oracle.trials} trials: {shapes}"
    )


def _verified(
    stages: Sequence[Stage], output: Path, python: str | None, allowed: Sequence[str]
) -> tuple[Candidate, Outcome | None, Path]:
    """Write the smallest case that fails in a fresh process too; the case as it was when none of
    the others does.
    """
    start = stages[0][0]
    for candidate, trial in reversed(stages[1:]):
        folder = free_folder(output)
        save(material(_told(candidate, start, trial)), folder)
        outcome = execute(
            folder,
            repeat=1 if candidate.case.failure.kind == "hang" else 2,
            python=python,
            allowed=allowed,
        )
        if outcome.exit_code == 1:
            write_issue(folder, read_case(folder), outcome)
            return candidate, outcome, folder
        _remove(folder)
    folder = free_folder(output)
    save(material(start), folder)
    return start, execute(folder, python=python, allowed=allowed), folder


def _limited(candidate: Candidate, limit: float) -> Candidate:
    return msgspec.structs.replace(
        candidate, case=msgspec.structs.replace(candidate.case, limit=limit)
    )


def _remove(folder: Path) -> None:
    """A folder that save has just written."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _told(candidate: Candidate, start: Candidate, trial: Trial) -> Candidate:
    """The candidate with what was recorded of other tensors taken out of its case, and a note of
    where it comes from.
    """
    was, now = size_of(start), size_of(candidate)
    sizes = f"{was.elements} elements to {now.elements}, {now.telling} of them neither 0 nor 1"
    note = f"shrunk from {sizes}: shapes and values are not the recorded ones"
    warnings = tuple(
        warning
        for warning in start.case.warnings
        if not warning.startswith(("values of input", "shrunk from"))
    )
    candidate = settled(candidate)
    parts = tuple(msgspec.structs.replace(part, row=_plain(part.row)) for part in candidate.parts)
    outputs = (
        tuple(_output(slot, seen, candidate.case.device) for slot, seen in trial.seen.items())
        or candidate.case.outputs
    )
    case = msgspec.structs.replace(candidate.case, outputs=outputs, warnings=(*warnings, note))
    return msgspec.structs.replace(candidate, case=case, parts=parts)


def _plain(row: CaseTensor) -> CaseTensor:
    return msgspec.structs.replace(row, stats={}, values=row.values if row.key is None else "exact")


def _output(slot: str, seen: dict[str, Any], device: str) -> CaseOutput:
    stats = {
        name: value
        for name, value in seen.items()
        if name not in {"dtype", "shape"} and value is not None
    }
    return CaseOutput(
        slot=slot, dtype=seen["dtype"], shape=tuple(seen["shape"]), device=device, stats=stats
    )
