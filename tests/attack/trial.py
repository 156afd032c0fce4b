# SPDX-License-Identifier: Apache-2.0
"""Makes trials: reads jobs from stdin, one a line, and forks a process for each, in which a small
training is recorded.

torch and opscope are imported once. A job is JSON: {"run": run directory or null, "out": prefix of
the files that take stdout and stderr, "options": OPSCOPE, "fault": [call, n, errno, microseconds],
"kill": seconds after which the process is killed}. The answer is a line with the exit code, and the
calls that were counted by name where the process was not killed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from opscope.record.active import active
from opscope.record.join import join_from_environment
from opscope.run.store.layout import read_run_file
from tests.attack.training import losses

SHIM = ctypes.CDLL(os.environ["FAULTS"])
NAMES = ("open", "write", "rename", "mkdir", "unlink", "truncate", "allocate")
STEPS = 14


def train() -> None:
    for loss in losses(STEPS):
        print(loss, flush=True)
        time.sleep(0.004)  # the writer gets its turn


def become(job: dict[str, Any], counted: int) -> None:
    """The process of one job, which ends as a program does."""
    os.dup2(os.open(job["out"] + ".out", os.O_CREAT | os.O_WRONLY, 0o600), 1)
    os.dup2(os.open(job["out"] + ".err", os.O_CREAT | os.O_WRONLY, 0o600), 2)
    if job["run"] is not None:
        run_id = read_run_file(Path(job["run"])).run_id
        os.environ.update(OPSCOPE=job["options"], OPSCOPE_RUN=job["run"], OPSCOPE_RUN_ID=run_id)
        name, n, error, slow = job["fault"]
        SHIM.fault_arm(job["run"].encode(), name.encode(), ctypes.c_long(n), error, slow)
        join_from_environment()
    train()
    session = active.session
    if session is not None:
        atexit.unregister(session.close)  # what is registered last runs first
        atexit.register(
            lambda: os.write(
                counted,
                json.dumps({name: SHIM.fault_count(name.encode()) for name in NAMES}).encode(),
            )
        )
        atexit.register(session.close)
    # what a program's end begins with; taking torch down in a fork takes seconds
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(3)


def await_end(pid: int, seconds: float | None) -> int:
    """Exit code of a child, negative for a signal; it is killed after so many seconds."""
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        train()  # what torch imports when it is first used
    importlib.import_module("opscope.record.torch.recorder")
    for line in sys.stdin:
        job = json.loads(line)
        counts, counted = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(counts)
            become(job, counted)
        os.close(counted)
        code = await_end(pid, job["kill"])
        told = os.read(counts, 4096).decode()
        os.close(counts)
        sys.stdout.write(json.dumps({"code": code, "counts": json.loads(told or "{}")}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
