# SPDX-License-Identifier: Apache-2.0
"""Records a program of the zoo in this process, and keeps the runs that several tests compare
with.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import opscope

Options = dict[str, Any]


def record(program: Path, options: Options, to: Path, *, values: str = "none") -> Path:
    """A run of the program on one thread, its only argument being the options."""
    given, sys.argv = sys.argv, [str(program), json.dumps(options)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.compiler.reset()  # what another test compiled is nothing to this one
    try:
        with opscope.record(to, values=values):
            runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv = given
        torch.set_num_threads(threads)
    return to


@dataclass(frozen=True)
class Goldens:
    """Healthy runs of a program, each recorded when it is first asked for."""

    program: Path
    folder: Callable[[], Path]
    runs: dict[str, Path] = field(default_factory=dict)

    def __call__(self, options: Options) -> Path:
        key = json.dumps(options)
        if key not in self.runs:
            self.runs[key] = record(self.program, options, self.folder() / "run")
        return self.runs[key]
