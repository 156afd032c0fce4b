# SPDX-License-Identifier: Apache-2.0
"""Records programs of a pair one after another in this process, each into a run of its own, and
keeps the losses that they printed.

    python -m tests.compare_zoo.ports.record PAIR FOLDER [VARIANT …]
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import torch
from tests.compare_zoo.ports.pair import Pair

import opscope


def record(program: Path, checkpoint: Path, to: Path) -> list[float]:
    """The losses of a program, recorded as `opscope run` does unless told otherwise."""
    given, sys.argv = sys.argv, [str(program), str(checkpoint)]
    torch.compiler.reset()
    torch.manual_seed(0)
    try:
        with opscope.record(to):
            namespace = runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv = given
    losses: list[float] = namespace["losses"]
    return losses


def main(name: str, folder: str, *variants: str) -> None:
    """Record the original, which saves its checkpoint, then the variants that load it."""
    torch.set_num_threads(1)
    torch._dynamo.config.cache_size_limit = 64
    pair, to = Pair.named(name), Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    losses = {"original": record(pair.original, to / "checkpoint.pt", to / "original")}
    for variant in variants or pair.variants:
        program = pair.written(variant, to / "programs" / variant)
        losses[variant] = record(program, to / "checkpoint.pt", to / variant)
    (to / "losses.json").write_text(json.dumps(losses), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
