# SPDX-License-Identifier: Apache-2.0
"""`opscope compare`: where two runs part, and which call made them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import EVERYTHING, Engine, Json, Operators, Selected, knowing_file
from opscope.cli.printing import INCOMPLETE, print_json, tell_page
from opscope.cli.progress import Progress
from opscope.errors import UsageError
from opscope.run.finding import Document

if TYPE_CHECKING:
    from opscope.compare.pair.mapping import Mapping
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric

OWN_METRIC = (
    "Your own metric as one column more of -o, and in --json: MODULE:FUNCTION of target "
    "and golden, or MODULE for all marked in it."
)
MAPPING = (
    "YAML of names, opscope's own or msprobe's api, cell, data or layer mapping; or a graph "
    "as JSON, made by atc --mode=1."
)
NOISE = (
    "A third run that differs from golden in rounding alone (other threads, another order of a "
    "batch): by how much the target drifts away over the steps is held against its."
)
EXPORT = (
    "model.pt2 of torch.export (needs --trust), or model.onnx: executed on what the model of the "
    "run was given, and compared with it; the run is an inference, recorded with --values full."
)
TRUST = "Load the file of --export, which executes code that it holds."
FAIL_ON = "Exit 1 for any finding, only for those where values part, or never."


def compare(  # noqa: PLR0913 - one for each option
    target: str,
    golden: str | None = None,
    /,
    *,
    json: Json = False,
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="Write all rows: .csv, .xlsx, .html or .json, by the ending; a file that exists "
            "gets a sibling.",
        ),
    ] = None,
    mapping: Annotated[Path | None, Parameter(help=MAPPING)] = None,
    reference: Annotated[
        str | None, Parameter(help="A third run of higher precision that decides who is wrong.")
    ] = None,
    noise_run: Annotated[str | None, Parameter(help=NOISE)] = None,
    values: Annotated[
        Literal["stored", "none"],
        Parameter(help="Measure stored values, or only statistics and digests."),
    ] = "stored",
    metric: Annotated[list[str] | None, Parameter(help=OWN_METRIC)] = None,
    fail_on: Annotated[Literal["any", "divergence", "never"], Parameter(help=FAIL_ON)] = "any",
    export: Annotated[Path | None, Parameter(help=EXPORT)] = None,
    trust: Annotated[bool, Parameter(negative=[], help=TRUST)] = False,
    executor: Engine = None,
    operators: Operators = None,
    selection: Selected = EVERYTHING,
) -> int:
    """Align two runs, whatever wrote them, and name the operator where they part.

    Exit code 0: the runs agree, 1: something found, 2: a run cannot be read, 3: nothing found, but
    the comparison is incomplete.

    Parameters
    ----------
    target
        The run under suspicion, or any known dump; with --export the one to trust.
    golden
        The run to trust.
    """
    from opscope.compare.api import Policy
    from opscope.compare.api import compare as ask
    from opscope.engine.executors import executor_of
    from opscope.formats.registry import open_run

    target, golden = _sides(target, golden, export, trust=trust)
    if executor is not None and (output is not None or metric):
        raise UsageError(
            "--executor sends back findings, no rows: it goes with neither -o nor --metric"
        )
    if output is not None:
        from opscope.view.compare_files import check_output, free_file, write_comparison

        check_output(output)
    own = _metrics(metric, asked=json or output is not None)
    policy = Policy(
        mapping=_mapping(mapping),
        values=values == "stored",
        selection=selection.selection(),
        reference=None if reference is None else open_run(reference),
        noise=None if noise_run is None else open_run(noise_run),
    )
    comparison = None
    with knowing_file(operators), executor_of(executor) as pool, Progress() as progress:
        sides = open_run(target), open_run(golden)
        if pool is None:
            comparison = ask(*sides, policy, progress=progress)
            document = comparison.document
        else:
            from opscope.compare.distributed import compare_by

            document = compare_by(pool, *sides, policy, progress=progress)
    document = msgspec.structs.replace(document, runs=(target, golden))
    if json:
        if own and comparison is not None:
            document = _with_metrics(document, comparison, own)
        print_json(document)
    else:
        from opscope.report.compare_terminal import print_comparison

        print_comparison(document)
        tell_page(target, golden)
    if output is not None and comparison is not None:
        free = free_file(output)
        if free != output:
            note(f"{output} exists; written to {free}")
        left = write_comparison(comparison, free, own)
        if left:
            note(
                f"{free}: {left} rows that are no further apart than those in it are left "
                "out; a .csv holds all"
            )
    return exit_code(document, fail_on=fail_on)


def _sides(target: str, golden: str | None, export: Path | None, *, trust: bool) -> tuple[str, str]:
    """The paths of both runs; that of an exported program is recorded first."""
    if export is None and golden is not None:
        return target, golden
    if export is None or golden is not None:
        raise UsageError(
            "give TARGET and GOLDEN, or --export model.pt2 --trust (or model.onnx) and the run of "
            "the eager model"
        )
    from opscope.replay.exported import is_onnx, record_exported

    if not trust and not is_onnx(export):
        raise UsageError(
            f"--export {export}: torch.export.load unpickles, which executes what the file says; "
            "add --trust if you know where it comes from"
        )
    from opscope.formats.registry import open_run
    from opscope.run.remote import is_url

    run = Path("runs", target.rstrip("/").rpartition("/")[2]) if is_url(target) else Path(target)
    beside = run.with_name(f"{run.name}-{export.stem}")
    return str(record_exported(export, open_run(target), beside)), target


def _with_metrics(
    document: Document, comparison: Comparison, metrics: tuple[Metric, ...]
) -> Document:
    from opscope.report.compare_rows import with_metrics

    return with_metrics(document, comparison, metrics)


def _metrics(paths: list[str] | None, *, asked: bool) -> tuple[Metric, ...]:
    if not paths:
        return ()
    if not asked:
        raise UsageError(
            "--metric makes a column of the table of rows; name its file with -o FILE.csv, "
            ".xlsx or .html, or ask with --json"
        )
    from opscope.kernels.metrics import find_metrics

    return find_metrics(paths)


def _mapping(path: Path | None) -> Mapping | None:
    if path is None:
        return None
    from opscope.compare.pair.files import file_name
    from opscope.compare.pair.mapping import Mapping as Found
    from opscope.compare.pair.mapping import read_mapping
    from opscope.formats.cann.fusion import is_graph, read_graph

    if not is_graph(path):
        return read_mapping(path)
    ops = read_graph(path).ops.values()
    return Found(
        originals={
            file_name(op.name): tuple(
                (output.name, output.index) if output.name else None for output in op.outputs
            )
            for op in ops
        }
    )


def exit_code(document: Document, *, fail_on: str) -> int:
    """1 for findings that count, 3 when there is none but the comparison was incomplete, else 0."""
    counted = [
        finding
        for finding in document.findings
        if fail_on == "any" or (fail_on == "divergence" and finding.kind == "divergence-origin")
    ]
    if counted:
        return 1
    return 0 if document.complete else INCOMPLETE
