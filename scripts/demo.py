# SPDX-License-Identifier: Apache-2.0
"""The main job from end to end: train under recording, find the operator, cut it out, run it alone.

Every command is printed as a user would type it. Exits 0 when all went as it should: the training
ended well, an overflow was found, and the operator fails alone too.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "examples/tiny_gpt/train.py"


def step(*words: str, expect: int, shown: str | None = None) -> None:
    """Run one command in view; end the demo when its exit code is not the expected one."""
    print(f"\n$ {shown or shlex.join(words)}", flush=True)
    code = subprocess.run(words, cwd=ROOT, check=False).returncode
    if code != expect:
        sys.exit(f"demo: exit code {code}, {expect} was expected")


def fresh(path: Path) -> Path:
    """A path that does not exist: path, path-2, path-3, …"""
    number = 1
    while True:
        candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
        if not (ROOT / candidate).exists():
            return candidate
        number += 1


def main() -> int:
    """Run the five commands."""
    python = Path(sys.executable)
    os.environ["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    opscope = str(python.parent / "opscope")
    with tempfile.TemporaryDirectory() as place:
        answer = Path(place) / "found.json"
        asked = ["run", "-o", "runs/demo", "--", "python", PROGRAM]
        told = [
            opscope,
            "run",
            "-o",
            "runs/demo",
            "--json-file",
            str(answer),
            "--",
            str(python),
            PROGRAM,
        ]
        step(*told, expect=0, shown=shlex.join(["opscope", *asked]))
        found = json.loads(answer.read_text(encoding="utf-8"))
    if not found["findings"]:
        sys.exit("demo: the model was to overflow, and nothing was found")
    run, call, case = found["runs"][0], found["findings"][0]["call"], str(fresh(Path("case")))
    # scan and repro exit with 1: something is wrong, and it was found.
    for expect, words in (
        (1, ["scan", run]),
        (0, ["show", run, call]),
        (1, ["repro", run, call, "-o", case]),
    ):
        step(opscope, *words, expect=expect, shown=shlex.join(["opscope", *words]))
    # Without opscope in reach: the folder stands alone.
    step(str(python), "-I", f"{case}/repro.py", expect=1, shown=f"python -I {case}/repro.py")
    print("\ndemo: the operator was found, cut out, and fails alone (exit code 1)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
