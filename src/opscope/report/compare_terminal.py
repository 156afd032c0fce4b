# SPDX-License-Identifier: Apache-2.0
"""A comparison as a person reads it: in one sentence where the runs part, then the numbers, then
what to type next.

opscope  391 of 396 calls matched, 1032 tensors: 237 same, 41 within tolerance, 754 differ
first divergence origin  step 0  Functional.conv1d  forward  blocks.1.conv
  train.py:16   return x + self.act(self.conv(self.norm(x)))
  why  parameter blocks.1.conv.weight (input 1) differs, and no recorded call produced it
  off  output 0.475 of golden's norm, input 0.679
next  opscope show runs/b Functional.conv1d.1.forward
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from opscope.report.console import folded, line, make_console, print_lines
from opscope.report.source import short_place
from opscope.report.terminal import evidence_of, head_lines, op_word, source_of
from opscope.run.finding import Document, Finding
from opscope.run.printable import number

MAX_OTHERS = 8
_INFINITE = (float("inf"), "inf")


def print_comparison(document: Document) -> None:
    """Draw the document of a comparison; colour only on a terminal."""
    console = make_console()
    print_lines(console, comparison_lines(document, width=console.width, here=Path.cwd()))


def comparison_lines(document: Document, *, width: int, here: Path) -> Iterator[Text]:
    """The lines for a terminal of this width; paths below here are shown relative to it."""
    yield from folded("opscope  ", facts_of(document), width=width, style="bold")
    if document.findings:
        yield from finding_lines(document.findings[0], document, width=width, here=here)
        yield from _others(document.findings[1:], document, here)
    yield from _drift_lines(document, width)
    for warning in document.summary.get("warnings", ()):
        yield from folded("warning  ", str(warning), width=width, style="yellow")
    command = _next(document)
    if command is not None:
        yield line(("next  ", "bold"), command)


def _drift_lines(document: Document, width: int) -> Iterator[Text]:
    """How far the target went from golden beside the noise run, where one was given."""
    drift = document.summary.get("drift")
    if not drift or not drift["steps"]:
        return
    said = (
        f"at most {drift['most']:.3g} times as far from golden as the noise run came, over "
        f"{drift['steps'][-1] - drift['steps'][0] + 1} steps ({drift['allowed']:g} are allowed)"
    )
    yield from folded("drift  ", said, width=width)
    for word in ("target", "noise"):
        ends = f"  {number(drift[word][0])} to {number(drift[word][-1])}"
        yield line(f"  {word:<7}{_sparks(drift[word], width - len(ends) - 9)}{ends}")


def _sparks(values: Sequence[float], columns: int) -> str:
    """A curve in one line of blocks, by its logarithm over the decades it covers."""
    count = max(min(columns, 40, len(values)), 1)
    shown = [values[column * len(values) // count] for column in range(count)]
    logs = [math.log10(value) if value > 0 else -math.inf for value in shown]
    known = [each for each in logs if math.isfinite(each)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    levels = [
        0 if not math.isfinite(each) else round((each - low) / max(high - low, 1e-9) * 7)
        for each in logs
    ]
    return "".join("▁▂▃▄▅▆▇█"[level] for level in levels)


def facts_of(document: Document) -> str:
    """`the runs agree: 396 of 396 calls matched; 1032 tensors, 990 same, 42 within tolerance`."""
    calls, tensors = document.summary.get("calls", {}), document.summary.get("tensors", {})
    total = max(calls.get("target", 0), calls.get("golden", 0))
    words = {
        "same": "same",
        "within_tolerance": "within tolerance",
        "differ": "differ",
        "shape_differs": "of another shape",
        "not_measured": "not measured",
        "only_target": "only in target",
        "only_golden": "only in golden",
    }
    counts = ", ".join(
        f"{tensors[name]} {word}" for name, word in words.items() if tensors.get(name)
    )
    said = f"{calls.get('matched', 0)} of {total} calls matched" + (
        f"; tensors: {counts}" if counts else ""
    )
    if document.findings:
        return said
    if document.summary.get("two_models"):
        return f"two different models: {said}"
    if not calls.get("target") or not calls.get("golden"):
        return f"nothing could be compared: {said}"
    agree = (
        "the runs agree" if document.complete else "no difference found in what could be compared"
    )
    return f"{agree}: {said}"


def finding_lines(
    finding: Finding, document: Document, *, width: int, here: Path
) -> Iterator[Text]:
    """One finding whole: what and where, its line of code, why, how far off."""
    ranks = len((document.summary.get("ranks") or {}).get("target", ()))
    yield from head_lines(finding, width=width, here=here, ranks=ranks)
    if finding.forward is not None:
        yield line(f"  gradient of {op_word(finding.forward.op)}  {finding.forward.call}")
    for reason in finding.reasons:
        yield from folded("  why  ", reason, width=width)
    off = _off(finding)
    if off:
        yield from folded("  off  ", off, width=width)
    own, other = (_spans(finding, side, here) for side in ("target", "golden"))
    source = source_of(finding)
    if own and (own != short_place(source, here=here) if source is not None else True):
        yield from folded("  in   ", own, width=width)
    golden = evidence_of(finding).get("golden_call")
    named = [str(golden)] if golden is not None and golden != finding.call else []
    if named or other not in ("", own):
        yield from folded("  gold ", "  ".join([*named, *filter(None, [other])]), width=width)


def _spans(finding: Finding, side: str, here: Path) -> str:
    """The lines of a side within which the fault is, where they are known: `train.py:9, 23-24`."""
    files: dict[str, list[str]] = {}
    for span in evidence_of(finding).get(f"{side}_lines") or ():
        file, _, lines = short_place(str(span), here=here).rpartition(":")
        files.setdefault(file, []).append(lines)
    return "; ".join(f"{file}:{', '.join(lines)}" for file, lines in files.items())


def _off(finding: Finding) -> str:
    evidence, parts = evidence_of(finding), []
    if evidence.get("other_shape"):
        parts.append("output of another shape than golden's")
    elif evidence.get("error") in _INFINITE:
        parts.append("output not finite where golden's is, or the other way round")
    elif evidence.get("error") is not None:
        allowed = evidence.get("allowed")
        bound = (
            f", {number(allowed)} is allowed"
            if isinstance(allowed, float) and evidence.get("cause") == "computed"
            else ""
        )
        parts.append(f"output {number(evidence['error'])} of golden's scale{bound}")
    if evidence.get("input_error") is not None:
        parts.append(f"input {number(evidence['input_error'])}")
    return "; ".join(parts)


def _others(findings: Sequence[Finding], document: Document, here: Path) -> Iterator[Text]:
    for finding in findings[:MAX_OTHERS]:
        source = f"  {short_place(finding.source, here=here)}" if finding.source else ""
        kind = finding.kind.replace("-", " ")
        yield line(
            ("also", "red"),
            f"  {kind}  step {finding.step}  {op_word(finding.op or '')}  "
            f"{finding.call or ''}{source}",
        )
    if len(findings) > MAX_OTHERS:
        runs = " ".join(shlex.quote(run) for run in document.runs)
        yield line(
            ("also", "red"), f"  {len(findings) - MAX_OTHERS} more: opscope compare --json {runs}"
        )


def _next(document: Document) -> str | None:
    """The command to type next; what is printed can be pasted into a shell, but for the program's
    own command (CMD).
    """
    finding = next((each for each in document.findings if each.call is not None), None)
    if finding is None or finding.call is None:
        return None
    if evidence_of(finding).get("command"):
        return str(evidence_of(finding)["command"])
    side = 1 if evidence_of(finding).get("side") == "golden" else 0
    return (
        f"opscope show {shlex.quote(document.runs[side])} "
        f"{shlex.quote(_placed(finding, document, ('target', 'golden')[side]))}"
    )


def _placed(finding: Finding, document: Document, side: str) -> str:
    """A call by its name, with rank and step where the run has several: the same name stands in
    each.
    """
    ranks, steps = document.summary.get("ranks") or {}, document.summary.get("steps") or {}
    rank = f"r{finding.rank}/" if len(ranks.get(side, ())) > 1 else ""
    step = f"s{finding.step}/" if steps.get(side, 1) > 1 else ""
    return f"{rank}{step}{finding.call}"
