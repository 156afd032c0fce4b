# SPDX-License-Identifier: Apache-2.0
"""Reads any known dump and writes it as plain files or in another tool's layout, in parallel, past
what cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import OpscopeError, UnavailableError, UsageError
from opscope.formats.cann.output import KINDS as CANN_KINDS
from opscope.formats.registry import find_format
from opscope.formats.writing.engine import Written
from opscope.formats.writing.job import Job
from opscope.formats.writing.kinds import KINDS
from opscope.run.selection import Selection

if TYPE_CHECKING:
    from opscope.formats.registry import Format
    from opscope.run.progress import Progress
    from opscope.run.protocol import Run


class Report(msgspec.Struct):
    """What came of it: tensors written, a line for each thing that could not be, and what the
    sources lacked.
    """

    tensors: int = 0
    failures: list[str] = []
    problems: list[str] = []


def convert(sources: Sequence[Path], job: Job, progress: Progress) -> Report:
    """Convert each source into job.out (several into a folder each); UsageError for a job that
    makes no sense, UnavailableError for a kind that needs what is not installed.

    A source that cannot be read at all is a failure like any other, and the next one goes on.
    """
    if job.kind not in KINDS:
        raise UsageError(f"--type {job.kind}: known are {', '.join(KINDS)}")
    report = Report()
    names: set[str] = set()
    for source in sources:
        own = msgspec.structs.replace(
            job, out=job.out if len(sources) == 1 else job.out / _own_name(source, names)
        )
        try:
            part = convert_one(source, own, progress)
        except (UsageError, UnavailableError):
            raise
        except OpscopeError as error:
            part = Report(failures=[str(error)])
        except OSError as error:
            part = Report(failures=[f"{error.filename or own.out}: {error.strerror or error}"])
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
    if job.out.resolve() == source.resolve() or (
        source.is_dir() and job.out.resolve().is_relative_to(source.resolve())
    ):
        raise UsageError(f"{job.out}: lies in the source; choose another -o")
    kind = find_format(source)
    if job.kind in CANN_KINDS and (
        kind.name == "cann" or (_by_hand(job) and kind.name == "mindspore" and _has_dumps(source))
    ):
        return _convert_cann(source, kind, job, progress)
    if job.layout is not None or job.shape:
        raise UsageError(
            f"{source}: --layout and --shape are for CANN dump files and the types "
            f"{', '.join(CANN_KINDS)}"
        )
    if job.kind == "msnpy":
        raise UsageError(
            f"{source}: --type msnpy is for CANN dump files; write --type mindspore for "
            "MindSpore's layout"
        )
    run = kind.open(source)
    written = convert_run(run, job, lambda done: progress(str(source), done, 0))
    return Report(written.tensors, written.failures, list(run.problems))


def _by_hand(job: Job) -> bool:
    """Whether something is asked for that only the files themselves can answer, not the run they
    make.
    """
    return job.layout is not None or bool(job.shape) or job.kind == "msnpy"


def _has_dumps(source: Path) -> bool:
    """Whether CANN dump files lie in a tree of MindSpore's (file_format bin)."""
    from opscope.formats.cann.detection import detect

    return detect(source)


def _convert_cann(source: Path, kind: Format, job: Job, progress: Progress) -> Report:
    """CANN dump files, with the names that the manuals give, in the directories they lie in."""
    from opscope.formats.cann.convert import Request
    from opscope.formats.cann.convert_tree import convert_tree

    selection, inputs, outputs = job.wanted.selection, job.wanted.inputs, job.wanted.outputs
    if inputs is not None or outputs is not None:
        inputs, outputs = inputs or (), outputs or ()
    request = Request(
        kind=job.kind,
        layout=job.layout,
        shape=job.shape,
        exact=job.exact,
        lenient=not (job.shape or job.exact),
        inputs=inputs if selection.wants_io("input") else (),
        outputs=outputs if selection.wants_io("output") else (),
    )
    whole = selection == Selection(io=selection.io)
    only = None if whole else _files(kind, source, selection)
    done = convert_tree(
        source,
        request,
        job.out,
        only=only,
        jobs=job.threads,
        progress=lambda now, of: progress(str(source), now, of),
    )
    return Report(done.files, [reason for failure in done.failures for reason in failure.reasons])


def _files(kind: Format, source: Path, selection: Selection) -> frozenset[str]:
    """Dump files of the calls that are meant; UsageError where the run does not say which files are
    whose.
    """
    from opscope.formats.cann.run import CannRun
    from opscope.run.query import calls as calls_of

    run = kind.open(source)
    if not isinstance(run, CannRun):
        raise UsageError(
            f"{source}: --layout, --shape and --type msnpy cannot be joined with a selection "
            "here; name the folder of a step"
        )
    return frozenset(path for call in calls_of(run, selection) for path in run.files_of(call))


def convert_run(run: Run, job: Job, done: Callable[[int], None]) -> Written:
    """Write an open run into job.out; done is told how many calls are finished. UsageError for what
    a kind cannot hold.
    """
    from opscope.formats.writing.whole_runs import write_run

    return write_run(run, job, done)
