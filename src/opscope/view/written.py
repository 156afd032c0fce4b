# SPDX-License-Identifier: Apache-2.0
"""A verdict as Markdown, for an issue: what was found, where, why, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opscope.repro.markdown import code, escape, fence, printable

MOST = 5  # findings told in full; the others are a line each
MOST_LINES = 40
NAMED = ("python", "torch", "torch_npu", "mindspore", "numpy", "opscope")


def written(verdict: dict[str, Any], run: dict[str, Any]) -> str:
    """The verdict's and the run's document as the text of an issue."""
    return "\n\n".join(_parts(verdict, run)) + "\n"


def _parts(verdict: dict[str, Any], run: dict[str, Any]) -> Iterator[str]:
    findings = verdict["findings"]
    if findings:
        first = findings[0]
        yield f"## {escape(first['words'])}: {code(first['op'] or '?')}, step {first['step']}"
    elif verdict["complete"]:
        yield "## Nothing wrong was found"
    else:
        yield "## Nothing wrong was found, but the run is incomplete"
    yield "\n".join(_facts(verdict, run))
    for number, finding in enumerate(findings[:MOST], start=1):
        if verdict["count"] > 1:
            yield f"### {number}. {escape(finding['words'])}: {code(finding['call'] or '?')}"
        yield from _finding(finding)
    rest = [f"- {_place(finding)}" for finding in findings[MOST:MOST_LINES]]
    if rest:
        yield "\n".join([f"### {verdict['count'] - MOST} more", *rest])
    warnings = verdict["summary"].get("warnings") or ()
    if warnings:
        yield "\n".join(["### Warnings", *(f"- {escape(text)}" for text in warnings)])


def _facts(verdict: dict[str, Any], run: dict[str, Any]) -> Iterator[str]:
    if run["command"]:
        yield f"- command: {code(' '.join(run['command']))}"
    packages = [f"{name} {run['packages'][name]}" for name in NAMED if name in run["packages"]]
    if packages:
        yield f"- {escape(', '.join(packages))}"
    yield f"- {escape(', '.join(str(path) for path in verdict['runs']) or run['path'])}"
    for problem in run["problems"]:
        yield f"- incomplete: {escape(str(problem))}"


def _place(finding: dict[str, Any]) -> str:
    words = [f"step {finding['step']}", f"rank {finding['rank']}", finding["phase"]]
    module = finding["module"]
    about = ", ".join(escape(word) for word in words if word)
    inside = f" in {code(module)}" if module else ""
    return f"{code(finding['call'] or '?')}{inside}, {about}, {escape(finding['confidence'])}"


def _finding(finding: dict[str, Any]) -> Iterator[str]:
    yield _place(finding)
    source, context = finding["source"], finding["code"]
    if source:
        yield f"{code(source)}"
    if context:
        numbered = [
            f"{'>' if number == context['line'] else ' '} {number:>5}  {printable(text)}"
            for number, text in enumerate(context["lines"], start=context["first"])
        ]
        yield fence(numbered, "text")
    slots = [
        f"{word} {slot['slot']:<3} {slot['line']}"
        for word, side in (("in ", "inputs"), ("out", "outputs"))
        for slot in finding[side]
    ]
    if slots:
        yield fence(slots[:MOST_LINES], "text")
    if finding["reasons"]:
        yield "\n".join(f"- {escape(reason)}" for reason in finding["reasons"])
    evidence = finding["evidence"][0] if finding["evidence"] else {}
    path = [code(name) for name in (evidence.get("path") or ())[:MOST_LINES]]
    if path:
        reached = evidence.get("reached")
        yield " → ".join(path) + (f" (the {escape(str(reached))})" if reached else "")
    if finding["commands"]:
        yield fence(list(finding["commands"]))
