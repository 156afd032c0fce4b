# SPDX-License-Identifier: Apache-2.0
"""Reads any known dump and writes it as plain files or in another tool's layout, in parallel, past what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import OpscopeError, UsageError
from opscope.formats.cann.convert import Request
from opscope.formats.cann.convert import convert as convert_cann
from opscope.formats.cann.output import KINDS as CANN_KINDS
from opscope.formats.cann.output import Output
from opscope.formats.cann.tree import found as cann_files
from opscope.formats.cann.writer import write_run as write_cann
from opscope.formats.manifest import Contents, write_manifest
from opscope.formats.registry import open_run
from opscope.formats.writing.array_files import KINDS, ArrayFiles, SafetensorsFiles
from opscope.formats.writing.engine import Wanted, Writer, Written, rows_of, write_rows
from opscope.formats.writing.mindspore_files import MindSporeFiles, kernel_level, plan_graphs
from opscope.formats.writing.msprobe_files import EntryNames, MsprobeFiles
from opscope.run.query import calls as calls_of
from opscope.run.query import records, tensors_of
from opscope.run.schema import Call, Stack, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run

TYPES = (*KINDS, "msnpy", "mindspore", "msprobe", "cann")
Progress = Callable[[str, int, int], None]  # what, done, of how many


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of each source. layout and shape are for CANN dump files; jobs is how many threads work."""

    out: Path
    kind: str = "npy"
    wanted: Wanted = Wanted()
    layout: str | None = None
    shape: tuple[int, ...] = ()
    exact: bool = False
    jobs: int = 0


class Report(msgspec.Struct):
    """What came of it: tensors written, a line for each thing that could not be, and what the sources lacked."""

    tensors: int = 0
    failures: list[str] = []
    problems: list[str] = []


def convert(sources: Sequence[Path], job: Job, progress: Progress) -> Report:
    """Convert each source into job.out (several into a folder each); UsageError for a job that makes no sense.

    A source that cannot be read at all is a failure like any other, and the next one goes on.
    """
    if job.kind not in TYPES:
        raise UsageError(f"--type {job.kind}: known are {', '.join(TYPES)}")
    report = Report()
    names: set[str] = set()
    for source in sources:
        own = msgspec.structs.replace(job, out=job.out if len(sources) == 1 else job.out / _own_name(source, names))
        try:
            part = convert_one(source, own, progress)
        except UsageError:
            raise
        except (OpscopeError, OSError) as error:
            part = Report(failures=[str(error)])
        report.tensors += part.tensors
        report.failures += part.failures
        report.problems += part.problems
    return report


def _own_name(source: Path, names: set[str]) -> str:
    """A folder for one source of several."""
    name, count = source.name or "run", 1
    while name in names:
        count += 1
        name = f"{source.name}~{count}"
    names.add(name)
    return name


def convert_one(source: Path, job: Job, progress: Progress) -> Report:
    """Convert one source."""
    if job.out.resolve() == source.resolve() or (source.is_dir() and job.out.resolve().is_relative_to(source.resolve())):
        raise UsageError(f"{job.out}: lies in the source; choose another -o")
    run = open_run(source)
    if run.info.format == "cann" and job.kind in CANN_KINDS and job.wanted.selection.everything:
        return _convert_cann(source, job, progress)
    if job.layout is not None or job.shape:
        raise UsageError(f"{source}: --layout and --shape are for CANN dump files and the types {', '.join(CANN_KINDS)}")
    if job.kind == "msnpy":
        raise UsageError(f"{source}: --type msnpy is for CANN dump files; write --type mindspore for MindSpore's layout")
    written = convert_run(run, job, lambda done: progress(str(source), done, 0))
    return Report(written.tensors, written.failures, list(run.problems))


def _convert_cann(source: Path, job: Job, progress: Progress) -> Report:
    """CANN dump files, with the names that the manuals give."""
    files = [source] if source.is_file() else [Path(file.path) for file in cann_files(source)]
    sides = {"input": job.wanted.inputs, "output": job.wanted.outputs}
    job.out.mkdir(parents=True, exist_ok=True)
    output = Output(job.out)
    plain = Request(kind=job.kind, layout=job.layout, shape=job.shape, exact=job.exact)
    picked = [msgspec.structs.replace(plain, side=side, index=index) for side, numbers in sides.items() for index in numbers or ()]
    finished = 0

    def done() -> None:
        nonlocal finished
        finished += 1
        progress(str(source), finished, len(files) * max(1, len(picked)))

    report = Report()
    for request in picked or [plain]:
        failed = convert_cann(files, request, output, jobs=_jobs(job), done=done)
        report.failures += [reason for failure in failed for reason in failure.reasons]
    report.tensors = sum(1 for path in job.out.rglob("*") if path.is_file())
    return report


def _jobs(job: Job) -> int:
    return job.jobs or os.cpu_count() or 1


def convert_run(run: Run, job: Job, done: Callable[[int], None]) -> Written:
    """Write an open run into job.out; done is told how many tensors there are so far. UsageError for what a kind cannot hold."""
    job.out.mkdir(parents=True, exist_ok=True)
    stacks = {(stack.process, stack.stack): stack for stack in records(run, "stacks")}
    if job.kind == "mindspore":
        return _to_mindspore(run, job, stacks, done)
    if job.kind == "msprobe":
        return _to_msprobe(run, job, stacks, done)
    if job.kind == "cann":
        outcome = write_cann(run, rows_of(run, job.wanted), job.out, jobs=_jobs(job), done=done)
        return Written(tensors=outcome.tensors, failures=outcome.failures)
    writer: Writer = SafetensorsFiles(job.out) if job.kind == "safetensors" else ArrayFiles(job.out, job.kind)
    written = write_rows(run, job.wanted, writer, jobs=_jobs(job), done=done)
    _list(run, job, written, stacks)
    return written


def _list(run: Run, job: Job, written: Written, stacks: dict[tuple[int, int], Stack]) -> None:
    """Lay opscope.jsonl beside the files."""
    calls = tuple(call for call, _ in written.calls)
    tensors = tuple(row for _, rows in written.calls for row in rows)
    used = {(call.process, call.stack) for call in calls}
    contents = Contents(
        info=run.info, processes=run.processes, calls=calls, stacks=tuple(stack for key, stack in stacks.items() if key in used),
        judgements=tuple(records(run, "judgements")), tensors=tensors,
    )  # fmt: skip
    write_manifest(job.out, contents)


def _rows(run: Run, job: Job) -> list[tuple[Call, list[Tensor]]]:
    """Calls and rows before anything is written, for planning."""
    return [(call, list(tensors_of(run, call))) for call in calls_of(run, job.wanted.selection)]


def _to_mindspore(run: Run, job: Job, stacks: dict[tuple[int, int], Stack], done: Callable[[int], None]) -> Written:
    planned = _rows(run, job)
    level = kernel_level(call.level for call, _ in planned)
    graphs, texts = plan_graphs(planned, stacks, level)
    about = run.info.config.get("config", {}) if run.info.format == "mindspore" else {}
    common = run.info.config.get("data_dump", {}).get("common_dump_settings", {}) if run.info.format == "mindspore" else {}
    net = common.get("net_name") if isinstance(common, dict) else None
    writer = MindSporeFiles(job.out, net=net if isinstance(net, str) and net.isidentifier() else "Net", level=level, graphs=graphs)
    both = _WithOthers(writer, ArrayFiles(job.out / "others", "npy"), level)
    written = write_rows(run, job.wanted, both, jobs=_jobs(job), done=done)
    writer.finish(written.calls, texts, about if isinstance(about, dict) else {})
    _list(run, job, written, stacks)
    return written


class _WithOthers:
    """Kernels go to MindSpore's layout, tensors of the other levels to files beside it."""

    def __init__(self, kernels: MindSporeFiles, others: ArrayFiles, level: str | None) -> None:
        self._kernels, self._others, self._level = kernels, others, level

    def write(self, call: Call, tensor: Tensor, values: np.ndarray[Any, Any]) -> ValueRef | None:
        """One tensor."""
        if call.level == self._level:
            return self._kernels.write(call, tensor, values)
        place = self._others.write(call, tensor, values)
        return msgspec.structs.replace(place, shard=f"others/{place.shard}")

    def close(self) -> None:
        """Finish both."""
        self._kernels.close()
        self._others.close()


def _to_msprobe(run: Run, job: Job, stacks: dict[tuple[int, int], Stack], done: Callable[[int], None]) -> Written:
    names = EntryNames()
    for call in calls_of(run, job.wanted.selection):
        names.of(call)
    writer = MsprobeFiles(job.out, names)
    written = write_rows(run, job.wanted, writer, jobs=_jobs(job), done=done)
    writer.finish(written.calls, stacks)
    _list(run, job, written, stacks)
    return written
