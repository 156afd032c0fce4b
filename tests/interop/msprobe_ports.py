# SPDX-License-Identifier: Apache-2.0
"""Dump programs of a pair of tests/compare_zoo/ports with msprobe, statistics of every API (L1), each
in a process of its own: python msprobe_ports.py PAIR FOLDER VARIANT …

Run by test_msprobe_ports.py with the interpreter that has mindstudio-probe.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch
from msprobe.pytorch import PrecisionDebugger
from tests.compare_zoo.ports.pair import Pair


def dump(program: Path, checkpoint: Path, to: Path) -> None:
    to.mkdir(parents=True)
    chosen = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    settings = {"task": "statistics", "dump_path": str(to), "rank": [], "step": [], "level": "L1"}
    (to / "config.json").write_text(json.dumps({**settings, "statistics": chosen}))
    debugger = PrecisionDebugger(config_path=str(to / "config.json"))
    torch.manual_seed(0)
    sys.argv = [str(program), str(checkpoint)]
    debugger.start()
    runpy.run_path(str(program), run_name="__main__")
    debugger.stop()


def main(name: str, folder: str, *variants: str) -> None:
    """The original first, which saves its checkpoint."""
    torch.set_num_threads(1)
    pair, to = Pair.named(name), Path(folder)
    for variant in ("original", *variants):
        original = variant == "original"
        program = pair.original if original else pair.written(variant, to / "programs" / variant)
        child = os.fork()  # one debugger a process
        if child == 0:
            try:
                dump(program, to / "checkpoint.pt", to / variant)
            except BaseException:  # noqa: BLE001 - the child ends here
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} {variant} failed")


main(*sys.argv[1:])
