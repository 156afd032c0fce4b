# SPDX-License-Identifier: Apache-2.0
"""`opscope tour`: the main verbs on a small example that comes with opscope, offline and without
torch.

The example's rows were recorded with torch by scripts/record_tour.py; the tour writes them as a run
of this machine, beside the program, so that every line of code is shown.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from opscope.run.place import with_own_name
from opscope.run.printable import printable
from opscope.run.schema import Call, Stack, Tensor
from opscope.version import VERSION

PLACE = Path(__file__).with_name("scripts") / "tour"
PROGRAM = PLACE / "train.py"
ROWS = PLACE / "rows.json"
RUN = "run"
# What is said, and the words after opscope; the program is in the folder as train.py.
STOPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "train.py trains a head of attention in float16; its loss is NaN in step 2. Which line?",
        ("scan", RUN),
    ),
    (
        "What did that line of code run, and on what?",
        ("show", RUN, "--source", "train.py:18", "--steps", "2", "--phases", "forward"),
    ),
    (
        "And that call, with all that is known about it?",
        ("show", RUN, "s2/<root>:mm#1"),
    ),
    (
        "The run is tables; ask them in SQL.",
        ("query", RUN, "select op, count(*) as n from calls group by op order by n desc limit 5"),
    ),
    ("What does that status bit say?", ("explain", "0x400")),
)
HERE = "{program}"  # in the rows, for the path of the program
OUTPUT = "Folder to make; one that exists gets a sibling."
LAST = "Now yours: opscope run -- python your_program.py"


class Recorded(msgspec.Struct, frozen=True):
    """The rows of the example."""

    calls: tuple[Call, ...]
    tensors: tuple[Tensor, ...]
    stacks: tuple[Stack, ...]


def tour(
    *,
    output: Annotated[
        Path,
        Parameter(name=["--output", "-o"], help=OUTPUT),
    ] = Path("opscope-tour"),
) -> int:
    """Walk through the main verbs on a small example, offline; torch is not needed.

    Every command is shown as you would type it, then run in a folder that stays.
    """
    folder = make_example(output)
    print(printable(f"# {folder}"))
    for said, words in STOPS:
        print()
        print(printable(f"# {said}"))
        print(printable(f"$ {shlex.join(['opscope', *words])}"), end="\n\n", flush=True)
        subprocess.run([sys.executable, "-m", "opscope", *words], cwd=folder, check=False)
    print()
    print(printable(f"# {LAST}"))
    return 0


def make_example(wanted: Path) -> Path:
    """A new folder with the program and its run, where wanted says or beside it."""
    from opscope.run.arrow import encode_rows
    from opscope.run.store.layout import create_run, process_facts, seal_run
    from opscope.run.store.writer import ProcessWriter

    folder = _fresh(wanted.absolute())
    program = Path(shutil.copy(PROGRAM, folder / "train.py"))
    rows = msgspec.json.decode(ROWS.read_bytes(), type=Recorded)
    run = create_run(folder / RUN, command=["python", "train.py"], version=VERSION)
    writer = ProcessWriter(run, process_facts())
    number = writer.process.process
    stacks = [
        Stack(
            process=number,
            stack=each.stack,
            frames=tuple(frame.replace(HERE, str(program)) for frame in each.frames),
        )
        for each in rows.stacks
    ]
    writer.append("stacks", encode_rows("stacks", stacks), step=0)
    for step in sorted({call.step for call in rows.calls}):
        calls = [
            msgspec.structs.replace(
                call, process=number, source=call.source and call.source.replace(HERE, str(program))
            )
            for call in rows.calls
            if call.step == step
        ]
        wanted_calls = {call.index for call in calls}
        tensors = [
            msgspec.structs.replace(tensor, process=number)
            for tensor in rows.tensors
            if tensor.index in wanted_calls
        ]
        writer.append("calls", encode_rows("calls", calls), step=step)
        writer.append("tensors", encode_rows("tensors", tensors), step=step)
        writer.end_step(step, finding=any(call.status for call in calls))
    writer.update(steps=1 + max(call.step for call in rows.calls))
    writer.close(0)
    seal_run(run)
    return folder


def _fresh(wanted: Path) -> Path:
    wanted = with_own_name(wanted)
    number = 1
    while True:
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        return folder
