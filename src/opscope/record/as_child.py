# SPDX-License-Identifier: Apache-2.0
"""What processes that are started to execute one model have in common: they answer by the path of
their recording on stdout, or by what went wrong in one line on stderr and exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def check_count(names: Sequence[str], given: Sequence[object]) -> None:
    """ValueError where a model does not take as many tensors as its call was given."""
    if len(names) != len(given):
        raise ValueError(
            f"it takes {len(names)} tensors ({', '.join(names)}), and the model's call was given "
            f"{len(given)} by position"
        )


def answer(execute: Callable[..., Path]) -> None:
    """Execute what the command line names, and say what came of it."""
    try:
        print(execute(*sys.argv[1:4]))
    except Exception as failure:  # noqa: BLE001 - whatever loading and executing it raises is told
        first = str(failure).strip().partition("\n")[0]
        sys.exit(f"{type(failure).__name__}: {first}")
