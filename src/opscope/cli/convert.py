# SPDX-License-Identifier: Apache-2.0
"""`opscope convert`: any known dump to plain files or to another tool's layout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import EVERYTHING, Json, Selected
from opscope.cli.printing import INCOMPLETE, print_json, say
from opscope.cli.progress import Progress
from opscope.errors import UsageError
from opscope.formats.writing.kinds import Kind
from opscope.run.remote import Copy, RemoteFolder, is_url
from opscope.version import VERSION

if TYPE_CHECKING:
    from opscope.formats.convert import Report
    from opscope.formats.writing.job import Job

UNREADABLE = 2
_LISTED = 20  # failures named on stderr; all are in the --json document


def convert(  # noqa: PLR0913 - the options of the manual
    *sources: str,
    out: Annotated[str, Parameter(name=("-o", "--out"), help="Folder to write into.")],
    kind: Annotated[
        Kind,
        Parameter(
            name="--type",
            help="What to write; mindspore, msprobe and cann are whole layouts, parquet tables.",
        ),
    ] = "npy",
    layout: Annotated[
        str | None,
        Parameter(
            help="Layout to convert CANN tensors to, NCHW; left as on the device without it."
        ),
    ] = None,
    shape: Annotated[
        str | None, Parameter(help="Shape of CANN tensors where the header has none, 1,3,224,224.")
    ] = None,
    inputs: Annotated[str | None, Parameter(help="Only these inputs, 0,2.")] = None,
    outputs: Annotated[str | None, Parameter(help="Only these outputs, 0.")] = None,
    jobs: Annotated[int, Parameter(help="Threads; as many as there are cores without it.")] = 0,
    json: Json = False,
    selection: Selected = EVERYTHING,
) -> int:
    """Read any known dump and write its tensors as files, or as another tool's dump.

    Goes on past what cannot be read and lists it at the end. Exit code 0: all written, 2: a source
    cannot be read or nothing
    was written, 3: something was left out.

    Parameters
    ----------
    sources
        Dumps or runs: folders or files; each of several gets a folder of its own.
    """
    from opscope.formats.convert import convert as convert_all
    from opscope.formats.writing.engine import Wanted
    from opscope.formats.writing.job import Job
    from opscope.repro.write import free_folder

    if not sources:
        raise UsageError("convert: name at least one dump; see opscope convert --help")
    wanted = Wanted(
        selection=selection.selection(),
        inputs=_numbers(inputs, "inputs"),
        outputs=_numbers(outputs, "outputs"),
    )
    folder = free_folder(Path(out))
    if folder != Path(out):
        note(f"{out} exists; written to {folder}")
    job = Job(
        out=folder,
        kind=kind,
        wanted=wanted,
        layout=_layout(layout),
        shape=_numbers(shape, "shape") or (),
        jobs=_checked_jobs(jobs),
    )
    copies = {source: Copy(RemoteFolder(source)).whole() for source in sources if is_url(source)}
    here = [copies[source].path if source in copies else Path(source) for source in sources]
    with Progress(quiet=json) as progress:
        report = convert_all(here, job, progress)
    if json:
        print_json(_document(sources, job, report))
    else:
        _told(job, report)
    return _exit_code(job, report)


def _numbers(text: str | None, what: str) -> tuple[int, ...] | None:
    """Numbers between commas; UsageError for anything else."""
    if text is None:
        return None
    if re.fullmatch(r"\s*\d{1,10}(\s*,\s*\d{1,10})*\s*", text) is None:
        raise UsageError(f"--{what} {text!r} is no list of numbers like 0,2")
    return tuple(int(part) for part in text.split(","))


def _layout(text: str | None) -> str | None:
    """A layout by its name, in whatever capitals; UsageError for one that nobody has."""
    from opscope.formats.cann.dtypes import FORMAT_NUMBERS

    if text is None:
        return None
    known = next((name for name in FORMAT_NUMBERS if name.lower() == text.lower()), None)
    if known is None:
        raise UsageError(
            f"--layout {text!r}: no such layout; NCHW, NHWC, ND, NC1HWC0, FRACTAL_Z and "
            "FRACTAL_NZ are some"
        )
    return known


def _checked_jobs(jobs: int) -> int:
    if not 0 <= jobs <= 1024:
        raise UsageError(f"--jobs {jobs}: from 1 to 1024")
    return jobs


def _told(job: Job, report: Report) -> None:
    written = f"{report.tensors} tensors written to {job.out}"
    say(written if job.out.exists() else "nothing was written")
    if _nothing(job, report):
        note("the dump holds no values of what is meant; opscope show lists what there is")
    for line in (*report.problems, *report.failures)[:_LISTED]:
        note(line)
    rest = len(report.problems) + len(report.failures) - _LISTED
    if rest > 0:
        note(f"and {rest} more; --json lists all")


def _document(sources: tuple[str, ...], job: Job, report: Report) -> dict[str, object]:
    return {
        "opscope": VERSION,
        "verb": "convert",
        "runs": list(sources),
        "out": str(job.out),
        "type": job.kind,
        "complete": not report.failures and not report.problems,
        "tensors": report.tensors,
        "failures": report.failures,
        "summary": {"warnings": report.problems},
    }


def _nothing(job: Job, report: Report) -> bool:
    """Whether files of values were asked for and there are none; whole layouts may hold statistics
    alone.
    """
    return (
        report.tensors == 0
        and not report.failures
        and job.kind not in {"mindspore", "msprobe", "cann"}
    )


def _exit_code(job: Job, report: Report) -> int:
    if (report.failures and report.tensors == 0) or _nothing(job, report):
        return UNREADABLE
    return INCOMPLETE if report.failures or report.problems else 0
