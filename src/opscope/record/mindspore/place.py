# SPDX-License-Identifier: Apache-2.0
"""Where one MindSpore process dumps to, and what the launcher must know of it.

    RUN/mindspore/{pid}-{start in ms}/facts.json      written by the process when it imports
                                                      MindSpore
    RUN/mindspore/{pid}-{start in ms}/data_dump.json  the settings it runs with
    RUN/mindspore/{pid}-{start in ms}/operators.json  what is declared of operators in the process,
                                                      when it begins and when it ends
    RUN/mindspore/{pid}-{start in ms}/chosen.json     what the program chose with opscope.set_dump
    RUN/mindspore/{pid}-{start in ms}/raised/         what a compiled graph raised, until it is
                                                      taken into the run (raised.py)
    RUN/mindspore/{pid}-{start in ms}/dump/           what MindSpore writes, taken into the run and
                                                      deleted iteration by iteration

MindSpore takes paths of letters, digits, '-', '_' and '/' only; where the run's path has others the
dump lies in a temporary folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError
from opscope.formats.settings.mindspore import FILE
from opscope.operators.catalogue import declared_rows
from opscope.operators.told import Rows
from opscope.record.chosen import Choices
from opscope.run.schema import Process
from opscope.run.store.layout import make_directory, write_json
from opscope.run.store.operator_file import read_operators, write_operators

FOLDER = "mindspore"
FACTS = "facts.json"
CHOICES = "chosen.json"
RAISED = "raised"
NET = "Net"
TEMPORARY = "opscope-mindspore-"
SAFE = re.compile(r"/[A-Za-z0-9_/-]*")
LARGEST = 1 << 20


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One process that runs MindSpore: who it is, where its dump lies, and whether the dump is ours
    to delete.

    taken_inside: the process takes the dump into its own tables; the launcher takes what is left
    when it has ended.
    """

    process: Process
    dump: str
    owned: bool = True
    taken_inside: bool = False


def make_place(run: Path, process: Process) -> tuple[Path, Path]:
    """The folder of this process, made, and the folder MindSpore is to dump into; OSError when they
    cannot be made.
    """
    start = int((process.start or 0) * 1000)
    process_folder = (run / FOLDER / f"{process.pid}-{start}").absolute()
    make_directory(process_folder.parent, exist_ok=True)
    make_directory(process_folder)
    dump = process_folder / "dump"
    if SAFE.fullmatch(str(dump)) is None:
        dump = Path(tempfile.mkdtemp(prefix=TEMPORARY)) / "dump"
    return process_folder, dump


def remove_dump(dump: Path) -> None:
    """Remove a dump of ours, and the temporary folder it has where the run's path would not do."""
    shutil.rmtree(dump, ignore_errors=True)
    if dump.parent.name.startswith(TEMPORARY):
        shutil.rmtree(dump.parent, ignore_errors=True)


def write_facts(process_folder: Path, facts: Facts) -> None:
    """Tell the launcher."""
    write_json(process_folder / FACTS, facts)


def read_facts(process_folder: Path) -> Facts | None:
    """What a process told; None while it has told nothing. Raises FormatError for what is no such
    file.
    """
    path = process_folder / FACTS
    try:
        if path.stat().st_size > LARGEST:
            raise FormatError(path, "is too large to be written by opscope")
        return msgspec.json.decode(path.read_bytes(), type=Facts)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise FormatError(path, f"cannot be read: {error}") from error


def read_choices(process_folder: Path) -> Choices:
    """What the program of a process chose; nothing where the file is missing or is none."""
    try:
        return msgspec.json.decode((process_folder / CHOICES).read_bytes(), type=Choices)
    except (OSError, msgspec.MsgspecError):
        return Choices()


def hand_declared(process_folder: Path) -> None:
    """Tell the launcher what is declared of operators in this process, if anything is and the disk
    takes it.
    """
    if declared_rows():
        with contextlib.suppress(OSError):
            write_operators(process_folder, declared_rows())


def handed_declared(process_folder: Path | None) -> Rows:
    """What is declared in the process of this place, as far as it told."""
    return read_operators([] if process_folder is None else [process_folder]).rows


def settings_document(dump: Path, steps: str | None) -> dict[str, Any]:
    """The data_dump.json under which MindSpore writes every kernel's tensors, on any back end; what
    is left out is left out later.
    """
    common = {
        "dump_mode": 0,
        "path": str(dump),
        "net_name": NET,
        "iteration": steps or "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": list(range(8)),
        "op_debug_mode": 0,
    }
    return {
        "common_dump_settings": common,
        "e2e_dump_settings": {"enable": True, "trans_flag": True, "save_kernel_args": True},
    }


def write_settings(process_folder: Path, document: dict[str, Any]) -> Path:
    """Write the settings; the path that MINDSPORE_DUMP_CONFIG is to name."""
    path = process_folder / FILE
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    os.chmod(path, 0o644)  # noqa: PTH101 - MindSpore refuses files that others may write
    return path
