# SPDX-License-Identifier: Apache-2.0
"""`opscope doctor`: what is here, what is missing, and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from opscope.cli.options import Json
from opscope.cli.printing import print_json
from opscope.errors import UnavailableError
from opscope.version import VERSION

if TYPE_CHECKING:
    from opscope.cli.diagnosis import Diagnosis

INDENT = 10


def doctor(
    *,
    device: Annotated[
        str | None,
        Parameter(
            help="Try statistics on a device (npu, cuda:1, cpu) instead, against the host's."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Say which versions, devices and back ends are here, what is missing, and why.

    Exit code 0: all is well, 1: something has to be mended, 125: there is no such device.
    """
    if device is not None:
        return examine_device(device, json=json)
    from opscope.cli.diagnosis import diagnose

    diagnosis = diagnose(os.environ, here=Path.cwd())
    if json:
        facts = msgspec.structs.asdict(diagnosis)
        print_json(
            {
                "opscope": diagnosis.opscope,
                "verb": "doctor",
                "verdict": "found" if diagnosis.problems else "clean",
                **facts,
            }
        )
    else:
        from opscope.report.console import folded, make_console, print_lines

        style = {"problem": "bold red", "note": "yellow"}
        console = make_console()
        for name, text in rows(diagnosis):
            print_lines(
                console,
                folded(
                    f"{name:{INDENT}}", text, width=console.width, style=style.get(name, "bold")
                ),
            )
    return 1 if diagnosis.problems else 0


def rows(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """The lines of the report: a word and what is to be said about it."""
    yield "opscope", f"{diagnosis.opscope}  {diagnosis.home}"
    yield "python", f"{diagnosis.python}  {diagnosis.executable}"
    yield "platform", diagnosis.platform
    for name, version in diagnosis.frameworks.items():
        yield name, version or "not installed"
    yield "devices", "; ".join(diagnosis.devices) or "none known"
    yield (
        "CANN",
        f"{diagnosis.cann['version']}  {diagnosis.cann['path']}"
        if diagnosis.cann
        else "not found: ASCEND_HOME_PATH is not set",
    )
    yield "kernels", _kernels(diagnosis)
    yield (
        "packages",
        ", ".join(f"{name} {version or 'missing'}" for name, version in diagnosis.packages.items()),
    )
    readable = [name for name, reason in diagnosis.formats.items() if not reason]
    yield "formats", ", ".join(readable)
    for name, reason in diagnosis.formats.items():
        if reason:
            yield "format", f"{name} is unavailable: {reason}"
    for note in diagnosis.notes:
        yield "note", note
    for problem in diagnosis.problems:
        yield "problem", problem


def _kernels(diagnosis: Diagnosis) -> str:
    if not diagnosis.kernels["compiled"]:
        return f"not compiled: {diagnosis.kernels['reason']}; NumPy does their work"
    return (
        f"compiled, {diagnosis.kernels['in_use']} in use (this processor runs "
        f"{', '.join(diagnosis.kernels['available'])})"
    )


# `opscope doctor --device`: statistics of every element type and layout on a device, as a table
# to hand on.

SECONDS = 600
WORDS = {True: "yes", False: "no"}
# In a process of its own: a kernel that fails there takes nothing else with it.
CODE = """
import sys, runpy
sys.argv = ["conformance", {device!r}]
runpy.run_module("opscope.record.torch.conformance", run_name="__main__")
"""


def examine_device(device: str, *, json: bool) -> int:
    """Print the table. 1: a statistic differs from the host's.

    Raises UnavailableError where there is no such device.
    """
    from opscope.cli.diagnosis import probe

    answers = probe(os.environ, seconds=SECONDS, code=CODE.format(device=device))
    if "error" in answers:
        raise UnavailableError(f"{device} cannot be tried: {answers['error']}")
    wrong = [row["type"] for row in answers["types"] if row["wrong"]]
    if json:
        verdict = "found" if wrong else "clean"
        print_json({"opscope": VERSION, "verb": "doctor", "verdict": verdict, **answers})
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(answers, wrong))
    return 1 if wrong else 0


def lines(answers: dict[str, Any], wrong: list[str]) -> Iterator[str]:
    """Plain text that survives being pasted: facts of the device, the table, what is wrong."""
    facts = dict(answers["device"])
    yield f"opscope {VERSION} on {facts.pop('device')} {facts.pop('name')}".rstrip()
    yield ", ".join(facts.pop("versions"))
    yield ", ".join(f"{name}: {WORDS.get(value, value)}" for name, value in facts.items())
    yield f"{'type':14}{'small tensors':18}large tensors"
    for row in answers["types"]:
        yield f"{row['type']:14}{row['small']:18}{row['large']}"
    yield f"wrong: {', '.join(wrong)}" if wrong else "nothing differs from the host"
