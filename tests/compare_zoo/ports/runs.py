# SPDX-License-Identifier: Apache-2.0
"""Runs of a pair, made in a process of their own, and whether they are what the pair says of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compare_zoo.ports.pair import HEALTHY, Pair

ROUNDING = 3e-6  # of the loss, in float32


def recorded(pair: Pair, folder: Path, variants: list[str]) -> None:
    """Runs of the original and of these variants in the folder, made in a process of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "tests.compare_zoo.ports.record", pair.name, str(folder)]
    done = subprocess.run([*command, *variants], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{pair.name}: {done.stderr[-3000:]}")


def checked(pair: Pair, folder: Path, variants: list[str]) -> None:
    """Raise unless the port trains as the original does and each fault changes that."""
    losses = json.loads((folder / "losses.json").read_text(encoding="utf-8"))
    for variant in variants:
        off = max(abs(a / b - 1) for a, b in zip(losses[variant], losses["original"], strict=True))
        if (off > ROUNDING) == (variant == HEALTHY):
            raise RuntimeError(f"{pair.name} {variant}: losses are off by {off:.2g}")
