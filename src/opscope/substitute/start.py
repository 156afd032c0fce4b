# SPDX-License-Identifier: Apache-2.0
"""Starts the process that makes calls again: a fresh interpreter with pipes to it and files that
both sides map.

Nothing here needs torch, so that the process can import torch while the program does the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opscope.errors import UnavailableError

SLOTS = 16
# It ends without taking torch down, which would take half a second for which the program waits.
BOOTSTRAP = (
    "import os, sys; sys.path[:] = {path!r}; from opscope.substitute.worker import main; "
    "main({requests}, {replies}, {files}); os._exit(0)"
)


@dataclass(eq=False)
class Started:
    """The process, and this side's descriptors: requests are written, replies are read, files are
    shared.
    """

    process: subprocess.Popen[bytes]
    requests: int
    replies: int
    files: tuple[int, ...]


def start() -> Started:
    """Start a process; UnavailableError when it cannot be started."""
    files = tuple(anonymous() for _ in range(SLOTS))
    there, requests = os.pipe()
    replies, back = os.pipe()
    path = [entry for entry in sys.path if entry and not entry.endswith(f"record{os.sep}bootstrap")]
    home = str(Path(__file__).resolve().parents[2])
    code = BOOTSTRAP.format(path=[home, *path], requests=there, replies=back, files=list(files))
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(there, back, *files),
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(
            f"no process for substitutes: {error}; check that {sys.executable} can be run"
        ) from error
    finally:
        os.close(there)
        os.close(back)
    return Started(process, requests, replies, files)


def anonymous() -> int:
    """A file descriptor of memory that no directory holds and no mount limits."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("opscope", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def environment() -> dict[str, str]:
    """That of this process, without opscope's own variables and without devices: the process
    computes on the CPU.

    Its idle threads leave the cores to the program, and memory that it frees stays at hand for the
    next call.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPSCOPE", "PYTHON"))
    }
    devices = {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "ASCEND_RT_VISIBLE_DEVICES": "",
    }
    memory = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
    return {**kept, **devices, **memory, "OMP_WAIT_POLICY": "PASSIVE"}
