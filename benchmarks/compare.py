# SPDX-License-Identifier: Apache-2.0
"""Two tensor dumps of msprobe through `opscope compare` and through `msprobe compare`: seconds of whole processes on the same files.

    python benchmarks/compare.py [--peer .venv-msprobe/bin/python] [--repeats 3] [--directory DIR]

The peer's interpreter has msprobe and torch (make .venv-msprobe/.ready). It dumps two steps of benchmarks/gpt.py (task tensor, level
L1), the second with perturbed weights: about 680 MB and 750 rows each. Both tools write their rows as CSV.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
        subprocess.run([peer, "-c", DUMP, str(HERE), str(folder), name], check=True, capture_output=True)
    return next((folder / "dump").rglob("dump.json")).parent


def seconds(command: list[str]) -> float:
    """Wall time of a whole process, whatever it finds."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command[0]}: exit code {done.returncode}: {done.stderr[-400:]}")
    return time.perf_counter() - start


def main() -> None:
    """Dump twice, compare with both tools in turn, print medians of the runs and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=str(HERE.parent / ".venv-msprobe/bin/python"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    if not Path(options.peer).exists():
        raise SystemExit("no interpreter with msprobe; type: make .venv-msprobe/.ready")
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.directory or Path(scratch)
        golden, target = (dumped(options.peer, directory, name) for name in ("golden", "perturbed"))
        size = sum(path.stat().st_size for path in golden.rglob("*") if path.is_file())
        print(f"each dump {size / 1e6:.0f} MB")
        own, other = [], []
        for number in range(options.repeats):
            ours = [sys.executable, "-m", "opscope", "compare", str(target), str(golden), "-o", f"{scratch}/rows{number}.csv"]
            theirs = [str(Path(options.peer).with_name("msprobe")), "compare", "-tp", f"{target}/dump.json", "-gp", f"{golden}/dump.json"]
            own.append(seconds(ours))
            other.append(seconds([*theirs, "-o", f"{scratch}/out{number}"]))
        print(f"opscope compare {sorted(own)[len(own) // 2]:.2f} s   msprobe compare {sorted(other)[len(other) // 2]:.2f} s")
        print(f"ratio {sorted(other)[len(other) // 2] / sorted(own)[len(own) // 2]:.1f}")


if __name__ == "__main__":
    main()
