# SPDX-License-Identifier: Apache-2.0
"""Trials of a recorded training: with a fault planted in a call of the C library, or killed at some
moment, and what is to hold of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import opscope
from opscope.errors import OpscopeError
from opscope.run.arrow import decode_stream
from opscope.run.store.layout import create_run, seal_run

HERE = Path(__file__).parent
OPTIONS = "--values full --keep last:4 --journal aten::mse_loss,aten::addmm"
NO_FAULT = ("open", 0, 0, 0)


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@dataclass
class Trial:
    """What came of one process."""

    run: Path
    code: int
    out: str
    err: str
    counts: dict[str, int] = field(default_factory=dict)

    def said(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]


class Bench:
    """Makes trials, each in a folder of its own; close() ends the process that forks them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0
        shim = folder / "faults.so"
        subprocess.run(
            [
                str(compiler()),
                "-shared",
                "-fPIC",
                "-O1",
                "-o",
                str(shim),
                str(HERE / "faults.c"),
                "-ldl",
            ],
            check=True,
        )
        environment = {
            **os.environ,
            "LD_PRELOAD": str(shim),
            "FAULTS": str(shim),
            "PYTHONPATH": str(HERE.parents[1]),
        }
        self._server = subprocess.Popen(
            [sys.executable, str(HERE / "trial.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def bare(self) -> Trial:
        return self._ask(None, NO_FAULT, None)

    def trial(
        self, fault: tuple[str, int, int, int] = NO_FAULT, *, kill: float | None = None
    ) -> Trial:
        run = create_run(self.folder / f"run-{self._made}", command=("train",))
        made = self._ask(run, fault, kill)
        seal_run(run)
        return made

    def _ask(self, run: Path | None, fault: tuple[str, int, int, int], kill: float | None) -> Trial:
        out = str(self.folder / f"said-{self._made}")
        self._made += 1
        job = {
            "run": None if run is None else str(run),
            "out": out,
            "options": OPTIONS,
            "fault": fault,
            "kill": kill,
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        told = [
            Path(f"{out}.{name}").read_text(encoding="utf-8")
            if Path(f"{out}.{name}").exists()
            else ""
            for name in ("out", "err")
        ]
        return Trial(run or self.folder, answer["code"], *told, answer["counts"])

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()


def content(run: Path) -> Counter[tuple[Any, ...]]:
    """Every row of calls and tensors, values read and all, without what differs from process to
    process.
    """
    opened = opscope.open_run(run)
    found: Counter[tuple[Any, ...]] = Counter()
    for call in decode_stream("calls", opened.table("calls")):
        found[call.step, call.name, call.error] += 1
    for row in decode_stream("tensors", opened.table("tensors")):
        value = opened.value(row).tobytes() if row.value is not None else None
        found[row.index, row.io, row.slot, row.min, row.max, value] += 1
    return found


def wrongs(trial: Trial, whole: Counter[tuple[Any, ...]]) -> list[str]:
    """What a run that is left may not be; whole is the content of one that was recorded
    undisturbed.
    """
    try:
        document = opscope.scan(opscope.open_run(trial.run))
    except OpscopeError:
        return []  # one line, and an exit code that is not 0
    lines = []
    # Of one that was killed the call that it was in is told, rightly.
    accused = [
        finding for finding in document.findings if finding.kind != "crash" or trial.code >= 0
    ]
    if accused:
        lines.append(f"a healthy program is accused: {accused[0]}")
    if document.complete:
        try:
            found = content(trial.run)
        except OpscopeError as error:
            return [*lines, f"complete, and {error}"]
        lines += (
            [f"complete, and {sum((whole - found).values())} rows are missing"]
            if whole - found
            else []
        )
        lines += (
            [f"complete, and {sum((found - whole).values())} rows are of nobody"]
            if found - whole
            else []
        )
    return lines


def harm(trial: Trial, bare: Trial) -> list[str]:
    """What the recording did to the program, and how it said so."""
    lines = []
    if (trial.code, trial.out) != (bare.code, bare.out):
        lines.append(
            f"ended with {trial.code} and {len(trial.out.splitlines())} lines: {trial.err[-400:]}"
        )
    if len(trial.said()) > 1 or any(not line.startswith("opscope: ") for line in trial.said()):
        lines.append(f"said {trial.err[-600:]}")
    return lines


def harm_before_its_end(trial: Trial, bare: Trial) -> list[str]:
    """What the recording did to a program that was killed: up to then it printed what it prints
    bare, and nobody said a word.
    """
    lines = [] if bare.out.startswith(trial.out) else [f"printed {trial.out[-400:]}"]
    return lines + ([f"said {trial.err[-600:]}"] if trial.said() else [])
