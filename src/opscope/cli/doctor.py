# SPDX-License-Identifier: Apache-2.0
"""`opscope doctor`: what is here, what is missing, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from opscope.cli.options import Json
from opscope.cli.printing import print_json

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
        from opscope.cli.device import examine_device

        return examine_device(device, json=json)
    from opscope.cli.diagnosis import diagnose

    found = diagnose(os.environ, here=Path.cwd())
    if json:
        facts = msgspec.structs.asdict(found)
        print_json(
            {
                "opscope": found.opscope,
                "verb": "doctor",
                "verdict": "found" if found.problems else "clean",
                **facts,
            }
        )
    else:
        from opscope.report.console import folded, make_console, print_lines

        style = {"problem": "bold red", "note": "yellow"}
        console = make_console()
        for name, text in rows(found):
            print_lines(
                console,
                folded(
                    f"{name:{INDENT}}", text, width=console.width, style=style.get(name, "bold")
                ),
            )
    return 1 if found.problems else 0


def rows(found: Diagnosis) -> Iterator[tuple[str, str]]:
    """The lines of the report: a word and what is to be said about it."""
    yield "opscope", f"{found.opscope}  {found.home}"
    yield "python", f"{found.python}  {found.executable}"
    yield "platform", found.platform
    for name, version in found.frameworks.items():
        yield name, version or "not installed"
    yield "devices", "; ".join(found.devices) or "none known"
    yield (
        "CANN",
        f"{found.cann['version']}  {found.cann['path']}"
        if found.cann
        else "not found: ASCEND_HOME_PATH is not set",
    )
    yield "kernels", _kernels(found)
    yield (
        "packages",
        ", ".join(f"{name} {version or 'missing'}" for name, version in found.packages.items()),
    )
    readable = [name for name, reason in found.formats.items() if not reason]
    yield "formats", ", ".join(readable)
    for name, reason in found.formats.items():
        if reason:
            yield "format", f"{name} is unavailable: {reason}"
    for note in found.notes:
        yield "note", note
    for problem in found.problems:
        yield "problem", problem


def _kernels(found: Diagnosis) -> str:
    if not found.kernels["compiled"]:
        return f"not compiled: {found.kernels['reason']}; NumPy does their work"
    return (
        f"compiled, {found.kernels['in_use']} in use (this processor runs "
        f"{', '.join(found.kernels['available'])})"
    )
