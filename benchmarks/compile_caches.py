# SPDX-License-Identifier: Apache-2.0
"""What compiling takes bare and recorded, and whether each finds what the other left in torch's
caches: the first step of a compiled training in fresh processes.

    python benchmarks/compile_caches.py [--training compiled_gpt2]

For each process the seconds of its first step, the graphs and what the caches of FX graphs and of
AOTAutograd answered. Six processes: bare and recorded with an empty folder of caches and again with
their own, recorded and checked with the bare program's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch
from torch._dynamo.utils import counters
from shapes import TRAININGS

training = TRAININGS[sys.argv[2]]()
begun = time.perf_counter()
training.step()
seconds = time.perf_counter() - begun
hits, misses = counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"]
autograd = counters["aot_autograd"]
print(
    f"RESULT {seconds:6.1f} s, {counters['stats']['unique_graphs']} graphs; "
    f"FX graphs: {hits} hits, {misses} misses; AOTAutograd: {autograd['autograd_cache_hit']} hits, "
    f"{autograd['autograd_cache_miss']} misses"
)
"""


def first_step(training: str, caches: Path, *, options: tuple[str, ...] | None) -> str:
    """What a process says of its first step; options are those of `opscope run`, None bare."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "first_step.py"
        program.write_text(PROGRAM, encoding="utf-8")
        words = [sys.executable, str(program), str(Path(__file__).parent), training]
        if options is not None:
            run = str(Path(folder) / "run")
            words = [sys.executable, "-m", "opscope", "run", "-o", run, *options, "--", *words]
        ended = subprocess.run(
            words,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(caches)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("RESULT "))
    return line.removeprefix("RESULT ")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--training", default="compiled_gpt2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bare, recorded = Path(folder) / "bare", Path(folder) / "recorded"
        for name, caches, words in (
            ("bare, empty caches", bare, None),
            ("recorded, empty caches", recorded, ()),
            ("bare again", bare, None),
            ("recorded again", recorded, ()),
            ("recorded, the bare one's caches", bare, ()),
            ("checked, the bare one's caches", bare, ("--check",)),
        ):
            said = first_step(options.training, caches, options=words)
            print(f"{name:32} {said}", flush=True)


if __name__ == "__main__":
    main()
