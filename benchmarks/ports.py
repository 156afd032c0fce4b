# SPDX-License-Identifier: Apache-2.0
"""Ports beside their originals through `opscope compare` and through `msprobe compare`: how many
healthy ones are left alone, how many faults are named on a line that is right.

    PYTHONPATH=. python benchmarks/ports.py [PAIR …] [--pairs 3] [--seed 0] [--peer PYTHON]

The pairs are those of tests/compare_zoo/ports, as many as asked for drawn with the seed among those
that need no other package. Each tool records the same programs with its own defaults: statistics,
msprobe of every API (level L1), in an interpreter of its own (make .venv-msprobe/.ready). Of
msprobe's table the first row whose Result is error is taken for its answer, with any line of the
program that stands in its stack; it names no line of golden.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import subprocess
import tempfile
from pathlib import Path

from tests.compare_zoo.ports.judge import judged
from tests.compare_zoo.ports.pair import HEALTHY, Pair, marked
from tests.compare_zoo.ports.runs import checked, recorded

from compare import by_msprobe

HERE = Path(__file__).resolve().parent
FRAME = re.compile(r"File ([^,]+), line (\d+)")
PROGRAM = """
import runpy
import sys
from pathlib import Path
beside, program, checkpoint, folder = sys.argv[1:]
sys.path.insert(0, beside)
import torch
from peer_msprobe import debugger
torch.set_num_threads(1)
torch.manual_seed(0)
watcher = debugger(Path(folder), "statistics", "L1")
sys.argv = [program, checkpoint]
watcher.start()
runpy.run_path(program, run_name="__main__")
watcher.stop()
watcher.step()
"""


def done(words: list[str]) -> None:
    """Run a command without its words; the last of them where it fails."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(words, capture_output=True, text=True, env=settings, check=False)
    if ended.returncode:
        raise SystemExit(f"{words}: {(ended.stdout + ended.stderr)[-2000:]}")


def dumped(peer: str, program: Path, checkpoint: Path, folder: Path) -> Path:
    """The dump that msprobe makes of a program."""
    folder.mkdir(parents=True)
    done([peer, "-c", PROGRAM, str(HERE), str(program), str(checkpoint), str(folder)])
    (dump,) = folder.rglob("dump.json")
    return dump.parent


def first_error(peer: str, target: Path, golden: Path, to: Path) -> dict[str, str] | None:
    """The first row of msprobe's table whose Result is error."""
    to.mkdir(parents=True)
    done(by_msprobe(peer, target, golden, str(to)))
    (table,) = to.glob("compare_result_*.csv")
    with table.open(encoding="utf-8", newline="") as file:
        return next((row for row in csv.DictReader(file) if row["Result"] == "error"), None)


def peer_is_right(peer: str, pair: Pair, folder: Path) -> dict[str, bool]:
    """By variant, whether msprobe's answer is right."""
    place = folder / "msprobe"
    checkpoint = folder / "checkpoint.pt"
    golden = dumped(peer, pair.original, checkpoint, place / "original")
    right = {}
    for variant in pair.variants:
        program = pair.written(variant, folder / "programs" / variant)
        target = dumped(peer, program, checkpoint, place / variant)
        row = first_error(peer, target, golden, place / f"{variant}-compared")
        if variant == HEALTHY:
            right[variant] = row is None
            continue
        frames = FRAME.findall(row["NPU_Stack_Info"]) if row else []
        lines = {int(line) for file, line in frames if Path(file) == program.resolve()}
        right[variant] = bool(lines & marked(program, variant, pair.port))
    return right


def main() -> None:
    """Print, for each pair and in all, what either tool is right about."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAIR")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", default=str(HERE.parent / ".venv-msprobe/bin/python"))
    options = parser.parse_args()
    if not Path(options.peer).exists():
        raise SystemExit("no interpreter with msprobe; type: make .venv-msprobe/.ready")
    free = [pair for pair in Pair.all() if not (pair.needs or pair.framework)]
    drawn = random.Random(options.seed).sample(free, options.pairs)
    pairs = [Pair.named(name) for name in options.names] or drawn
    answers: list[tuple[bool, bool, bool]] = []  # healthy, opscope is right, msprobe is
    for pair in pairs:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / pair.name
            recorded(pair, folder, pair.variants)
            checked(pair, folder, pair.variants)
            theirs = peer_is_right(options.peer, pair, folder)
            mine = {each: judged(pair, each, folder).right for each in pair.variants}
        new = [(each == HEALTHY, mine[each], theirs[each]) for each in pair.variants]
        print(f"{pair.name:<20} {score(new)}", flush=True)
        answers += new
    print(f"{'all':<20} {score(answers)}")


def score(answers: list[tuple[bool, bool, bool]]) -> str:
    """Healthy ones left alone and faults named, by either tool."""
    words = []
    for name, at in (("opscope", 1), ("msprobe", 2)):
        healthy = [answer[at] for answer in answers if answer[0]]
        faults = [answer[at] for answer in answers if not answer[0]]
        words.append(f"{name}: healthy {sum(healthy)}/{len(healthy)}")
        words[-1] += f", faults {sum(faults)}/{len(faults)}"
    return "   ".join(words)


if __name__ == "__main__":
    main()
