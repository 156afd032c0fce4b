# SPDX-License-Identifier: Apache-2.0
"""How a process that was started to execute one file answers: the path of its recording on stdout,
or what went wrong in one line on stderr and exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def answer(execute: Callable[..., Path]) -> None:
    """Execute what the command line names, and say what came of it."""
    try:
        print(execute(*sys.argv[1:4]))
    except Exception as failure:  # noqa: BLE001 - whatever loading and executing it raises is told
        first = str(failure).strip().partition("\n")[0]
        sys.exit(f"{type(failure).__name__}: {first}")
