# SPDX-License-Identifier: Apache-2.0
"""Two tensor dumps of msprobe through `opscope compare` and through `msprobe compare`: whole
processes on the same files.

    python benchmarks/compare.py [--peer .venv-msprobe/bin/python] [--repeats 3] [--directory DIR]

The peer's interpreter has msprobe and torch (make .venv-msprobe/.ready). It dumps two steps of
benchmarks/gpt.py (task tensor, level L1), the second with perturbed weights: about 980 MB and 750
rows each. Both tools write their rows as CSV. Each is run once before it is timed, so that files
are in the page cache and imported modules in bytecode, as after an installation.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from installed import installed

HERE = Path(__file__).parent
DUMP = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
from gpt import Training
from peer_msprobe import debugger
torch.set_num_threads(2)
torch.manual_seed(0)
training = Training()
if sys.argv[3] == "perturbed":
    with torch.no_grad():
        chosen = [p for p in training.model.parameters() if p.dim() == 2][4]
        chosen.add_(1e-2 * torch.randn(chosen.shape, generator=torch.Generator().manual_seed(1)))
folder = Path(sys.argv[2])
folder.mkdir(parents=True)
watcher = debugger(folder, "tensor", "L1")
watcher.start(model=training.model)
training.step()
watcher.stop()
watcher.step()
"""


def dumped(peer: str, directory: Path, name: str) -> Path:
    """One dump by msprobe, or the one that is there from an earlier call."""
    folder = directory / name
    if not folder.exists():
        subprocess.run(
            [peer, "-c", DUMP, str(HERE), str(folder), name], check=True, capture_output=True
        )
    return next((folder / "dump").rglob("dump.json")).parent


def by_msprobe(peer: str, target: Path, golden: Path, to: str) -> list[str]:
    """The command by which msprobe compares two dumps."""
    dumps = ["-tp", f"{target}/dump.json", "-gp", f"{golden}/dump.json"]
    return [str(Path(peer).with_name("msprobe")), "compare", *dumps, "-o", to]


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a whole process, whatever it finds."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=installed())
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command[0]}: exit code {done.returncode}: {done.stderr[-400:]}")
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def report(name: str, times: list[tuple[float, float]]) -> float:
    """Prints the medians of one tool and answers that of the wall time."""
    wall, processor = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"{name:16} {wall:6.2f} s, {processor:6.2f} s of processor; wall "
        f"{', '.join(f'{one:.2f}' for one, _ in times)}"
    )
    return wall


def main() -> None:
    """Dump twice, compare with both tools in turn, print medians of the runs and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=str(HERE.parent / ".venv-msprobe/bin/python"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the dumps are, or are made and stay")
    options = parser.parse_args()
    if not Path(options.peer).exists():
        raise SystemExit("no interpreter with msprobe; type: make .venv-msprobe/.ready")
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.directory or Path(scratch)
        golden, target = (dumped(options.peer, directory, name) for name in ("golden", "perturbed"))
        size = sum(path.stat().st_size for path in golden.rglob("*") if path.is_file())
        print(f"each dump {size / 1e6:.0f} MB")
        own = [
            sys.executable,
            "-m",
            "opscope",
            "compare",
            str(target),
            str(golden),
            "-o",
            f"{scratch}/rows.csv",
        ]
        peer = by_msprobe(options.peer, target, golden, scratch)
        rounds = [(timed(own), timed(peer)) for _ in range(options.repeats + 1)][1:]
    ours, theirs = zip(*rounds, strict=True)
    mine, other = report("opscope compare", list(ours)), report("msprobe compare", list(theirs))
    print(f"ratio {other / mine:.1f}")


if __name__ == "__main__":
    main()
