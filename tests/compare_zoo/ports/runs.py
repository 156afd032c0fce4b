# SPDX-License-Identifier: Apache-2.0
"""Runs of a pair, made in a process of their own, and whether they are what the pair says of them."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compare_zoo.ports.pair import HEALTHY, Pair

ROUNDING = 3e-6  # of the loss, in float32
OTHERWISE = 3e-5  # the same, of two frameworks


def recorded(pair: Pair, folder: Path, variants: list[str]) -> None:
    """Runs of the original and of these variants in the folder, made in a process of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    if pair.framework:
        _recorded_apart(pair, folder, variants)
        return
    command = [sys.executable, "-m", "tests.compare_zoo.ports.record", pair.name, str(folder)]
    done = subprocess.run([*command, *variants], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{pair.name}: {done.stderr[-3000:]}")


def recorded_alone(program: Path, held: Path, to: Path) -> Path:
    """The run of one program, made by `opscope run`; held: where its weights are, or will be."""
    command = [sys.executable, "-m", "opscope", "run", "-o", str(to), "--", sys.executable]
    done = subprocess.run(
        [*command, str(program), str(held)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return to


def _recorded_apart(pair: Pair, folder: Path, variants: list[str]) -> None:
    """The same of a port of another framework, each program in a process of its own."""
    folder.mkdir(parents=True)
    held = str(folder / "weights.npz")
    run = [sys.executable, "-m", "opscope", "run", "-o"]
    losses = {}
    for name in ("original", *variants):
        if name == "original":
            command = [*run, str(folder / name), "--", sys.executable, str(pair.original), held]
        else:
            program = pair.written(name, folder / "programs" / name)
            command = [pair.interpreter, str(program), held]
            if pair.framework == "mindspore":
                command = [*run, str(folder / name), "--", *command]
            else:  # a program of JAX or TensorFlow names itself what is recorded
                command = [*command, str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{pair.name} {name}: {done.stderr[-3000:]}")
        told = [line for line in done.stdout.splitlines() if line.startswith("[")]
        losses[name] = ast.literal_eval(told[-1])
    (folder / "losses.json").write_text(json.dumps(losses), encoding="utf-8")


def checked(pair: Pair, folder: Path, variants: list[str]) -> None:
    """Raise unless the port trains as the original does and each fault changes that."""
    losses = json.loads((folder / "losses.json").read_text(encoding="utf-8"))
    for variant in variants:
        off = max(abs(a / b - 1) for a, b in zip(losses[variant], losses["original"], strict=True))
        if (off > (OTHERWISE if pair.framework else ROUNDING)) == (variant == HEALTHY):
            raise RuntimeError(f"{pair.name} {variant}: losses are off by {off:.2g}")
