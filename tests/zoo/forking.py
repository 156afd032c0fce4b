# SPDX-License-Identifier: Apache-2.0
"""Programs without opscope, each in a process of its own, which is forked from one that has
imported torch: importing it takes longer than most of them.

    python forking.py <requests >answers

A request is a line of JSON: the program, and the folder in which it is to run and in which its
output is put; the answer is its exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

OUT, ERR = "alone.out", "alone.err"


class Forking:
    """The process that forks, seen from a test."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def execute(self, program: Path, place: Path) -> subprocess.CompletedProcess[str]:
        """How the program ended and what it printed; RuntimeError when the process is gone."""
        words = [str(program), str(place)]
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps(words) + "\n")
        asked.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError(f"no answer to {words}")
        out, err = ((place / name).read_text(encoding="utf-8") for name in (OUT, ERR))
        return subprocess.CompletedProcess(words, int(answer), out, err)

    def close(self) -> None:
        """End it, and wait for that."""
        self._process.communicate()


def become(program: str, place: str) -> NoReturn:
    """Be the program, as Python would be that is started with it alone."""
    os.chdir(place)
    for name, descriptor in ((os.devnull, 0), (OUT, 1), (ERR, 2)):
        way = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if descriptor else os.O_RDONLY
        os.dup2(os.open(name, way), descriptor)
    sys.argv, sys.path[0] = [program], str(Path(program).parent)
    runpy.run_path(program, run_name="__main__")
    sys.exit()


def serve() -> None:
    """Answer every request; a child goes on with its program instead."""
    import torch._dynamo  # noqa: F401  (which any optimizer imports)

    while request := sys.stdin.readline():
        child = os.fork()
        if not child:
            become(*json.loads(request))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
