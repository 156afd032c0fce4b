# SPDX-License-Identifier: Apache-2.0
"""The verdict as a person reads it at the end of a run: what failed first, where, what became of
it, what to type next.

opscope  6 steps, 907 calls a step, 1 rank     runs/demo
first overflow  step 3  aten::bmm  forward  blocks.2.attn
  train.py:41   scores = q @ k.transpose(-1, -2)
  in   f16[32, 128, 64] x∈[-310, 298]   f16[32, 64, 128] x∈[-287, 305]
  out  f16[32, 128, 128] 37 inf         0x400 accumulation overflow
  then _softmax (NaN) … loss at step 3
next  opscope repro runs/demo 'blocks.2.attn:bmm#1' -o case
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from opscope.operators.spelling import COMPILED, TENSORFLOW
from opscope.report.console import folded, line, make_console, print_lines
from opscope.report.oneline import one_line
from opscope.report.source import short_place, text_of
from opscope.run.finding import Document, Finding, Slot
from opscope.run.printable import printable

MAX_SLOTS = 6
MAX_OTHERS = 4
INDENT = 7  # "  in   "
GAP = 3
# An operator of torch, whose inputs a journal can keep; a gradient formula in Python has no
# overload in its name.
OVERLOAD = re.compile(r"\w+::\w+\.\w+", re.ASCII)


def print_verdict(document: Document, *, stderr: bool = False) -> None:
    """Draw a document; colour only on a terminal."""
    console = make_console(stderr=stderr)
    print_lines(console, verdict_lines(document, width=console.width, here=Path.cwd()))


def verdict_lines(document: Document, *, width: int, here: Path) -> Iterator[Text]:
    """The lines of a verdict for a terminal of this width; paths below here are shown relative to
    it.
    """
    run = document.runs[0] if document.runs else ""
    if document.findings:
        yield from _heading(facts_of(document.summary), run, width)
        yield from finding_lines(
            document.findings[0],
            width=width,
            here=here,
            ranks=len(document.summary.get("ranks") or ()),
        )
        yield from _others(document.findings[1:], run, here, width)
    else:
        yield from _heading(_clean(document), run, width)
    for words in beside_the_program(document.summary):
        yield from folded(*words, width=width, style="dim")
    yield from _beside(document.summary.get("beside") or {}, width)
    skipped = document.summary.get("skipped_steps")
    if skipped:
        yield from folded("skipped  ", _skipped(skipped), width=width, style="yellow")
    yield from _guarded(document, run, width)
    for warning in document.summary.get("warnings", ()):
        yield from folded("warning  ", str(warning), width=width, style="yellow")
    command = _next(document, run)
    if command is not None:
        yield line(("next  ", "bold"), command)
    again = next(filter(None, map(keeping_command, document.findings[:1])), None)
    if again is not None:
        yield line(("or    ", "bold"), f"{again}   (what it read was not kept; this keeps it)")


def _guarded(document: Document, run: str, width: int) -> Iterator[Text]:
    """How many origins the program itself guards against, and how to see them; nothing once they
    are listed.
    """
    hidden = document.summary.get("hidden") or 0
    listed = sum(bool(evidence_of(finding).get("guarded")) for finding in document.findings)
    if hidden > listed:
        guards = (
            f"{_count(hidden - listed, 'origin')} that the program removes itself: opscope "
            f"scan --show-hidden {shlex.quote(run)}"
        )
        yield from folded("guarded  ", guards, width=width, style="dim")


def _beside(earlier: dict[str, Any], width: int) -> Iterator[Text]:
    """The verdict beside that of an earlier run: what it found that is gone here, still there, or
    new.
    """
    if not earlier:
        return
    count = sum(len(earlier.get(word) or ()) for word in ("gone", "still"))
    there = (
        f"{earlier.get('run')}: {_count(earlier.get('steps'), 'step')}, {_count(count, 'finding')}"
        if count
        else (f"{earlier.get('run')}: {_count(earlier.get('steps'), 'step')}, nothing found")
    )
    yield from folded("beside  ", there, width=width, style="bold")
    for word, style in (("gone", "green"), ("still", "yellow"), ("new", "red")):
        lines = earlier.get(word) or []
        for each in lines[:MAX_OTHERS]:
            yield from folded(f"{word:<6}", str(each), width=width, style=style)
        if len(lines) > MAX_OTHERS:
            yield from folded(
                f"{word:<6}", f"{len(lines) - MAX_OTHERS} more", width=width, style=style
            )


def beside_the_program(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What was checked and what that took, what ran on substitutes: head and text of a line each,
    over all ranks.
    """
    checked = list((summary.get("checked") or {}).values())
    if checked:
        calls, made, signatures = (
            sum(each.get(name, 0) for each in checked)
            for name in ("checked", "calls", "signatures")
        )
        seconds = max(each.get("seconds", 0.0) for each in checked)
        lines = [
            ", ".join(
                filter(
                    None,
                    (
                        f"{calls} of {made} calls",
                        _count(signatures, "signature"),
                        f"{seconds:.1f} s",
                    ),
                )
            )
        ]
        left = sorted({op for each in checked for op in each.get("unjudged", {})})
        if left:
            lines.append(
                f"not judged: {', '.join(map(op_word, left[:4]))}{' …' if len(left) > 4 else ''}"
            )
        yield "checked  ", "; ".join(lines)
        worst = max(checked, key=lambda each: each.get("beyond", 0.0))
        # the first checks of a signature are made whatever they cost
        if worst.get("beyond", 0.0) >= 0.1:
            first = worst["seconds"] - worst["sampling"]
            lines = [
                f"{worst['budget']} exceeded by {worst['beyond']:.1f} s",
                f"first checks {first:.1f} s, recording {worst['recording']:.1f} s",
            ]
            yield "budget   ", ": ".join(lines)
    for rank, steps in (summary.get("trainer") or {}).items():
        named = [f"{step} is {text}" for step, text in steps.items()]
        more = " …" if len(named) > MAX_OTHERS else ""
        whose = f"rank {rank}: " if len(summary["trainer"]) > 1 else ""
        yield "trainer  ", f"{whose}{'; '.join(named[:MAX_OTHERS])}{more}"
    moved = list((summary.get("substituted") or {}).values())
    if moved:
        counts: dict[str, int] = {}
        for each in moved:
            for op, times in each.get("calls", {}).items():
                counts[op] = counts.get(op, 0) + times
        yield (
            "moved  ",
            ", ".join(f"{op_word(op)} {_count(times, 'call')}" for op, times in counts.items())
            or "no call",
        )


def facts_of(summary: dict[str, Any]) -> str:
    """`6 steps, 907 calls a step, 1 rank`: what of it is known; `100 of 300 steps` where older ones
    were not kept.
    """
    parts = [_steps(summary), _calls(summary), _count(len(summary.get("ranks") or ()), "rank")]
    if summary.get("hidden_calls"):
        parts.append(f"{summary['hidden_calls']} calls hidden by compilation")
    return ", ".join(part for part in parts if part)


def _steps(summary: dict[str, Any]) -> str:
    steps, seen = summary.get("steps"), summary.get("steps_seen")
    return (
        f"{steps} of {seen} steps"
        if isinstance(steps, int) and isinstance(seen, int) and seen > steps
        else _count(steps, "step")
    )


def _calls(summary: dict[str, Any]) -> str:
    calls = summary.get("calls_per_step")
    return (
        f"{calls:.0f} calls a step"
        if isinstance(calls, int | float)
        else _count(summary.get("calls"), "call")
    )


def _count(number: Any, noun: str) -> str:
    return (
        f"{number} {noun}{'' if number == 1 else 's'}" if isinstance(number, int) and number else ""
    )


def _clean(document: Document) -> str:
    hidden = document.summary.get("hidden_calls")
    unseen = (
        f"; {_count(hidden, 'call')} hidden by compilation {'was' if hidden == 1 else 'were'} "
        "not looked at"
        if hidden
        else ""
    )
    if document.summary.get("steps") == 0 and not document.summary.get("calls_per_step"):
        return f"nothing was recorded{unseen}"
    facts = facts_of({**document.summary, "hidden_calls": None})
    words = (
        f"no overflow, NaN or Inf {'seen ' if hidden else ''}in {facts}"
        if facts
        else "no overflow, NaN or Inf"
    )
    words += unseen
    return words if document.complete else f"{words}, in what could be read"


def _heading(facts: str, run: str, width: int) -> Iterator[Text]:
    """Facts on the left, the run on the right, on lines of their own where they do not fit on
    one.
    """
    left, right = printable(f"opscope  {facts}".rstrip()), printable(run)
    room = width - cell_len(left) - cell_len(right)
    if room >= 2:
        yield Text.assemble((left, "bold"), " " * room, (right, "dim"))
    else:
        yield from folded("opscope  ", facts, width=width, style="bold")
        yield Text.assemble("  ", (right, "dim"))


def head_lines(finding: Finding, *, width: int, here: Path, ranks: int) -> Iterator[Text]:
    """What and where, and its line of code."""
    yield headline(finding, "first", ranks=ranks)
    source = source_of(finding)
    if source is not None:
        yield line("  ", code_line(source, here, width - 2))


def source_of(finding: Finding) -> str | None:
    """The line of a finding's call, or of the forward call behind it."""
    return finding.source or (finding.forward.source if finding.forward is not None else None)


def finding_lines(finding: Finding, *, width: int, here: Path, ranks: int) -> Iterator[Text]:
    """One finding whole: what and where, its line of code, its tensors, what became of it."""
    yield from head_lines(finding, width=width, here=here, ranks=ranks)
    library = evidence_of(finding).get("library")
    if library is not None:
        yield line("  in ", code_line(str(library), here, width - 5))
    if finding.forward is not None:
        yield line(f"  gradient of {op_word(finding.forward.op)}  {finding.forward.call}")
    status = " ".join(filter(None, [finding.status, *finding.reasons[:1]]))
    inside, outside = (
        _cells(finding.inputs),
        [*_cells(finding.outputs), *filter(None, [printable(status)])],
    )
    yield from _aligned(inside, outside, width)
    for reason in finding.reasons[1:]:
        yield from folded("  why  ", reason, width=width)
    fate = fate_of(finding)
    if fate:
        yield from folded("  then ", fate, width=width)


def headline(finding: Finding, order: str, *, ranks: int) -> Text:
    """`first overflow  step 3  aten::bmm  forward  blocks.2.attn`."""
    doubt = "" if finding.confidence == "proven" else f"  {finding.confidence}"
    rank = f"rank {finding.rank}  " if ranks > 1 else ""
    rest = [
        op_word(finding.op or finding.call or ""),
        finding.phase or "",
        finding.module or "<root>",
    ]
    return line(
        (f"{order} {kind_words(finding)}", "bold red"),
        f"  {rank}step {finding.step}  {'  '.join(filter(None, rest))}{doubt}",
    )


def kind_words(finding: Finding) -> str:
    """What happened, in the words of a user: overflow, NaN, Inf, unsound input, or the kind."""
    if finding.kind != "overflow-origin":
        return finding.kind.replace("-", " ")
    if evidence_of(finding).get("arrived"):
        return "unsound input"
    if finding.status is not None:
        return "overflow"
    counted = {
        name: any(slot.stats.get(name) for slot in finding.outputs)
        for name in ("nan", "pos_inf", "neg_inf")
    }
    return (
        "NaN"
        if counted["nan"]
        else "Inf"
        if counted["pos_inf"] or counted["neg_inf"]
        else "overflow"
    )


def op_word(op: str) -> str:
    """An operator without the overload that goes without saying."""
    return op.removesuffix(".default")


def fate_of(finding: Finding) -> str:
    """`_softmax (NaN) … loss at step 3`, or what hid it."""
    evidence = evidence_of(finding)
    if evidence.get("hidden_by"):
        return f"hidden by {_op_of_name(str(evidence['hidden_by']))}"
    reached = evidence.get("reached")
    if not reached:
        return ""
    path, nan_at = [str(name) for name in evidence.get("path") or ()][1:], evidence.get("nan_at")
    step = (evidence.get("reached_at") or {}).get("step", finding.step)
    return "".join([*_told(path, nan_at), f"{reached} at step {step}"])


def _told(path: Sequence[str], nan_at: Any) -> Iterator[str]:
    """The first call of a path and the one that made NaN of it, `…` for those left out."""
    lines = [
        at
        for at, name in enumerate(path)
        if at == 0 or (name == nan_at and at == path.index(nan_at))
    ]
    for at, following in zip(lines, [*lines, len(path)][1:], strict=True):
        yield f"{_op_of_name(path[at])}{' (NaN)' if path[at] == nan_at else ''}"
        yield " … " if following > at + 1 else ", "


def evidence_of(finding: Finding) -> dict[str, Any]:
    return finding.evidence[0] if finding.evidence else {}


def _op_of_name(name: str) -> str:
    """`blocks.2.attn:_softmax~bwd#2` -> `_softmax`, its phase said; other tools' names stay as they
    are.
    """
    match = re.fullmatch(r"(?:.*):([^:#~]+)(?:~(\w+))?#\d+", name)
    return name if match is None else f"{match[1]}{' ' + match[2] if match[2] else ''}"


def code_line(source: str, here: Path, width: int) -> str:
    source_text, code = printable(short_place(source, here=here)), text_of(source)
    if code is None:
        return source_text
    room = width - cell_len(source_text) - GAP
    code = printable(code)
    if cell_len(code) > room:
        code = set_cell_size(code, max(room - 1, 1)).rstrip() + "…"
    return f"{source_text}{' ' * GAP}{code}"


def _cells(slots: Sequence[Slot]) -> list[str]:
    """Tensors in one line each; parameters and the like by name; the unsound ones first where there
    are many.
    """
    chosen = slots
    if len(slots) > MAX_SLOTS:
        chosen = sorted(
            slots,
            key=lambda slot: (
                not any(slot.stats.get(name) for name in ("nan", "pos_inf", "neg_inf"))
            ),
        )[:MAX_SLOTS]
    cells = [
        one_line(slot.dtype, slot.shape, slot.stats)
        + (f" {slot.tensor_name}" if slot.tensor_name else "")
        for slot in chosen
    ]
    if len(slots) > len(chosen):
        cells.append(f"… {len(slots) - len(chosen)} more")
    return [printable(cell) for cell in cells]


def _aligned(inside: list[str], outside: list[str], width: int) -> Iterator[Text]:
    """Inputs above outputs in common columns, as many of them as fit on a line."""
    for columns in range(max(len(inside), len(outside), 1), 0, -1):
        rows = [
            (tag, cells[at : at + columns])
            for tag, cells in (("in", inside), ("out", outside))
            for at in range(0, len(cells), columns)
        ]
        widths = [
            max((cell_len(row[at]) for _, row in rows if at < len(row)), default=0)
            for at in range(columns)
        ]
        if columns == 1 or INDENT + sum(widths) + GAP * (columns - 1) <= width:
            break
    tagged = ""
    for tag, cells in rows:
        padded = (" " * GAP).join(
            cell + " " * (room - cell_len(cell)) for cell, room in zip(cells, widths, strict=False)
        )
        yield line(f"  {'' if tag == tagged else tag:4} {padded.rstrip()}")
        tagged = tag


def _others(findings: Sequence[Finding], run: str, here: Path, width: int) -> Iterator[Text]:
    for finding in findings[:MAX_OTHERS]:
        source = short_place(finding.source, here=here) if finding.source else ""
        fate = fate_of(finding)
        words = [
            kind_words(finding),
            f"step {finding.step}",
            op_word(finding.op or ""),
            finding.call or "",
            source,
        ]
        said = "  ".join(filter(None, [*words, fate if fate.startswith("hidden") else ""]))
        yield from folded("also  ", said, width=width, style="red")
    if len(findings) > MAX_OTHERS:
        yield line(
            ("also", "red"),
            f"  {len(findings) - MAX_OTHERS} more: opscope scan --json {shlex.quote(run)}",
        )


def _skipped(steps: Sequence[dict[str, Any]]) -> str:
    """Steps that a GradScaler left out, as it should, and what overflowed in the first of them."""
    first = steps[0]
    count = _count(len(steps), "step")
    return (
        f"{count} by GradScaler on purpose, the first {first.get('step')}: "
        f"{op_word(str(first.get('op')))} {first.get('call')}"
    )


def _next(document: Document, run: str) -> str | None:
    """The command to type next; what is printed can be pasted into a shell, but for the program's
    own command (CMD).
    """
    finding = next((each for each in document.findings if each.call is not None), None)
    return None if finding is None else next_command(finding, run)


def keeping_command(finding: Finding) -> str | None:
    """The second run that keeps what an origin read, where the first could not; None for others."""
    unkept = any(record.get("unkept") for record in finding.evidence)
    if not unkept or finding.op is None or not OVERLOAD.fullmatch(finding.op):
        return None
    words = f"--steps {finding.step} --ops {shlex.quote(finding.op)} --values full"
    return f"opscope run {words} -- CMD"


def next_command(finding: Finding, run: str) -> str | None:
    """The command that follows a finding, for a shell; None where it names no call."""
    if finding.call is None:
        return None
    if any(record.get("asynchronous") for record in finding.evidence):
        return "opscope run --sync -- CMD"  # the call that it names only heard of the failure
    # An overflow record whose operator was not dumped is a call without tensors: there is nothing
    # to make a case of; a graph is no single operator; TensorFlow's debugger keeps no attributes.
    judged = (
        finding.kind in ("overflow-origin", "replay-mismatch")
        and bool(finding.inputs or finding.outputs)
        and not (finding.op or "").startswith((COMPILED, f"{TENSORFLOW}::"))
    )
    has_inputs = judged or any(record.get("inputs_kept") for record in finding.evidence)
    if (
        finding.kind == "crash"
        and finding.op is not None
        and OVERLOAD.fullmatch(finding.op)
        and not has_inputs
    ):
        late = any(record.get("late") for record in finding.evidence)
        waiting = "--sync " if late else ""  # it returned before it failed
        return f"opscope run {waiting}--journal {shlex.quote(finding.op)} -- CMD"
    verb, end = ("repro", " -o case") if has_inputs else ("show", "")
    return f"opscope {verb} {shlex.quote(run)} {shlex.quote(finding.call)}{end}"
