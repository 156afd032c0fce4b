# SPDX-License-Identifier: Apache-2.0
"""Records the example of `opscope tour` anew and writes its rows into the package; needs torch.

Rows name the program as `{program}` and no place of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

import opscope
from opscope.cli.tour import HERE, PROGRAM, ROWS, Recorded
from opscope.run.query import records


def main() -> None:
    """Record, take the rows out, write."""
    with tempfile.TemporaryDirectory() as place:
        # a copy: frames inside of the package are taken for opscope's own
        program = str(shutil.copy(PROGRAM, Path(place) / "train.py"))
        run = str(Path(place) / "run")
        opscope_run = [sys.executable, "-m", "opscope", "run", "-o", run, "--values", "none"]
        subprocess.run([*opscope_run, "--", sys.executable, program], check=True)
        opened = opscope.open_run(run)
        calls = [
            msgspec.structs.replace(
                call,
                thread=0 if call.thread is not None else None,
                autograd_thread=None,
                source=call.source and call.source.replace(program, HERE),
            )
            for call in records(opened, "calls")
        ]
        tensors = [
            msgspec.structs.replace(tensor, value=None) for tensor in records(opened, "tensors")
        ]
        stacks = [
            msgspec.structs.replace(
                stack,
                frames=tuple(
                    frame.replace(program, HERE)
                    for frame in stack.frames
                    if frame.startswith(program)
                ),
            )
            for stack in records(opened, "stacks")
        ]
    told = Recorded(tuple(calls), tuple(tensors), tuple(stacks))
    rows = msgspec.json.decode(msgspec.json.encode(told))
    for table in ("calls", "tensors"):
        rows[table] = [
            {name: cell for name, cell in row.items() if cell is not None} for row in rows[table]
        ]
    ROWS.write_bytes(msgspec.json.encode(rows) + b"\n")
    print(ROWS, ROWS.stat().st_size)


if __name__ == "__main__":
    main()
