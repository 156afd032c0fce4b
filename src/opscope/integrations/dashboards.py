# SPDX-License-Identifier: Apache-2.0
"""A run on the dashboard where its training is: how large each module's results are, step by step,
and the findings as text.

Each function takes the writer that the program has, so that nothing is imported for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
import numpy as np

from opscope.formats.registry import open_run
from opscope.run.finding import Finding
from opscope.run.printable import printable
from opscope.run.protocol import Run
from opscope.scan.api import scan
from opscope.view.all_calls import UNKNOWN, AllCalls
from opscope.view.columns import Groups

PREFIX = "opscope"
_NEVER = -1  # when a call was executed again that was not


class Magnitude(msgspec.Struct, frozen=True, kw_only=True):
    """A module in one step: the largest finite magnitude of its operators' results (None where
    nothing is finite) and the number of their elements that are not finite.
    """

    rank: int
    step: int
    module: str
    phase: str
    largest: float | None
    lost: int


class TensorBoard(Protocol):
    """The part of torch.utils.tensorboard.SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...
    def add_text(self, tag: str, text_string: str, global_step: int) -> Any: ...


class MLflow(Protocol):
    """The part of the module mlflow that is used."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> Any: ...
    def log_text(self, text: str, artifact_file: str) -> Any: ...


class Logs(Protocol):
    """A run of Weights & Biases or SwanLab: what wandb.init() gives, or the module swanlab."""

    def log(self, data: dict[str, Any], step: int) -> Any: ...


class Tracer(Protocol):
    """The part of opentelemetry.trace.Tracer that is used."""

    def start_span(self, name: str, *, attributes: dict[str, Any]) -> Any: ...


def magnitudes(run: Run | str | os.PathLike[str]) -> Iterator[Magnitude]:
    """How large the results of each module are, by step, rank and phase."""
    calls = AllCalls(open_run(run))
    module, phase, results = calls.texts("module"), calls.texts("phase"), calls.results
    chosen = results.there & calls.texts("level").which(lambda level: level != "module")
    chosen &= phase.which({"forward", "backward"}.__contains__)
    rows = np.flatnonzero(chosen & (calls.numbers("again", _NEVER) == _NEVER))
    rank, step = calls.numbers("rank")[rows], calls.numbers("step")[rows]
    groups = Groups(step, rank, module.numbers[rows], phase.numbers[rows])
    first = groups.first
    for values in zip(
        rank[first].tolist(),
        step[first].tolist(),
        module.at(rows[first]),
        phase.at(rows[first]),
        groups.merged(np.maximum, results.largest[rows]).tolist(),
        groups.merged(np.add, results.lost[rows]).tolist(),
        strict=True,
    ):
        row = dict(zip(Magnitude.__struct_fields__, values, strict=True))
        yield Magnitude(**{**row, "largest": None if row["largest"] == UNKNOWN else row["largest"]})


def to_tensorboard(run: Run | str | os.PathLike[str], writer: TensorBoard) -> None:
    """Scalars opscope/largest/… and opscope/not finite/… of each module, findings as text at their
    steps.
    """
    opened = open_run(run)
    for step, values in _by_step(opened):
        for name, value in values.items():
            writer.add_scalar(name, value, step)
    for number, finding in enumerate(scan(opened).findings):
        text = printable(finding.line()).replace("`", "'")
        writer.add_text(f"{PREFIX}/finding/{number}", f"`{text}`", finding.step)


def to_mlflow(run: Run | str | os.PathLike[str], mlflow: MLflow) -> None:
    """The same as metrics of the active run of MLflow (the module, or a stand-in of it), the
    verdict as its artifact opscope/verdict.txt.
    """
    opened = open_run(run)
    for step, values in _by_step(opened):
        mlflow.log_metrics({_told(name): value for name, value in values.items()}, step=step)
    mlflow.log_text(f"{scan(opened)!r}\n", f"{PREFIX}/verdict.txt")


def to_logs(
    run: Run | str | os.PathLike[str], logs: Logs, *, text: Callable[[str], Any] = str
) -> None:
    """The same curves to whatever has log(data, step): a run of Weights & Biases, swanlab; in the
    last step the verdict as opscope/verdict, in what text makes of a string (swanlab.Text).
    """
    opened, last = open_run(run), 0
    for last, values in _by_step(opened):
        logs.log(values, step=last)
    logs.log({f"{PREFIX}/verdict": text(f"{scan(opened)!r}")}, step=last)


def to_opentelemetry(run: Run | str | os.PathLike[str], tracer: Tracer) -> None:
    """One span "opscope run" with an event for each finding, for who watches a fleet: its kind,
    confidence, operator, call, module, line, step and rank are attributes of the event.
    """
    opened = open_run(run)
    document = scan(opened)
    about = {"command": " ".join(opened.info.command or ()), "path": str(opened.info.path)}
    span = tracer.start_span(
        f"{PREFIX} run",
        attributes={f"{PREFIX}.{name}": printable(text) for name, text in about.items()}
        | {f"{PREFIX}.findings": len(document.findings), f"{PREFIX}.complete": document.complete},
    )
    for finding in document.findings:
        span.add_event(f"{PREFIX}.finding", attributes=_attributes(finding))
    span.end()


def _attributes(finding: Finding) -> dict[str, Any]:
    """What is known of a finding, as values that OpenTelemetry takes."""
    names = ("kind", "confidence", "op", "call", "module", "source", "phase", "step", "rank")
    values = {name: getattr(finding, name) for name in names}
    return {
        f"{PREFIX}.{name}": printable(value) if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    } | {f"{PREFIX}.reasons": [printable(reason) for reason in finding.reasons]}


def _by_step(run: Run) -> Iterator[tuple[int, dict[str, float]]]:
    """Each step with its curves by name."""
    ranks = len({process.rank for process in run.processes}) > 1
    step: int | None = None
    values: dict[str, float] = {}
    for each in magnitudes(run):
        if each.step != step:
            if step is not None:
                yield step, values
            step, values = each.step, {}
        module = printable(each.module or "<root>")
        curve = f"{each.phase}/rank {each.rank}/{module}" if ranks else f"{each.phase}/{module}"
        if each.largest is not None:
            values[f"{PREFIX}/largest/{curve}"] = each.largest
        values[f"{PREFIX}/not finite/{curve}"] = float(each.lost)
    if step is not None:
        yield step, values


def _told(name: str) -> str:
    """A name as MLflow takes it: letters, digits and some marks, 250 of them."""
    return re.sub(r"[^\w .:/-]", "_", name, flags=re.ASCII)[:250]
