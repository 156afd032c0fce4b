# SPDX-License-Identifier: Apache-2.0
"""What it costs to import opscope and to ask it for help: wall time of fresh processes, median of
15, the empty interpreter beside it.

    python benchmarks/startup.py

Targets: `import opscope` under 60 ms above the empty interpreter, `opscope --help` under 300 ms
whole.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

CODES = {
    "empty interpreter": "",
    "import opscope": "import opscope",
    "opscope --help": "import sys; from opscope.cli import main; sys.exit(main(['--help']))",
}


def seconds(code: str) -> float:
    """Wall time of one process that runs the code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure the three in turn, so that what else the machine does falls on all alike."""
    rounds = [{name: seconds(code) for name, code in CODES.items()} for _ in range(15)]
    for name in CODES:
        print(f"{name:18} {statistics.median(taken[name] for taken in rounds) * 1000:5.0f} ms")


if __name__ == "__main__":
    main()
