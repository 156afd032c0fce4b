# SPDX-License-Identifier: Apache-2.0
"""Runs a Python file on what stands in for Windows: no POSIX module, function or signal, none of
opscope's compiled kernels; with the word `macos` first, what macOS has not alone.

    python bare_system.py [macos] FILE [WORD …]
"""

from __future__ import annotations

import importlib
import mmap
import os
import runpy
import signal
import sys
from pathlib import Path
from types import ModuleType

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
KERNELS = ("opscope.kernels._native", "opscope.kernels._recorder")
FUNCTIONS = [
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "fchmod",
    "fork",
    "getegid",
    "geteuid",
    "getpgid",
    "getsid",
    "getuid",
    "killpg",
    "mkfifo",
    "posix_fadvise",
    "preadv",
    "pread",
    "pwrite",
    "pwritev",
    "register_at_fork",
    "sendfile",
    "setsid",
    "statvfs",
    "waitid",
]
NOT_ON_MACOS = ("O_DIRECT", "memfd_create", "posix_fallocate", "sched_getaffinity")
SIGNALS = ("SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV")


class Missing:
    """A finder of modules that are not there."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in (*MODULES, *KERNELS):
            raise ModuleNotFoundError(name, name=name)


def take(module: ModuleType, *names: str) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def become_macos() -> None:
    take(os, *NOT_ON_MACOS)
    take(signal, "sigtimedwait")


def become_windows() -> None:
    become_macos()
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing)  # type: ignore[arg-type]
    take(os, *FUNCTIONS)
    take(mmap, "MAP_ANONYMOUS", "MAP_PRIVATE", "MAP_SHARED", "PROT_READ")
    take(signal, "pthread_sigmask", "setitimer", "SIGCHLD")
    signal.Signals = [each for each in signal.Signals if each.name in SIGNALS]  # type: ignore[misc, assignment]


if __name__ == "__main__":
    macos = sys.argv[1] == "macos"
    sys.argv = sys.argv[1 + macos :]
    if "import torch" in Path(sys.argv[0]).read_text(encoding="utf-8"):
        importlib.import_module("torch._dynamo")  # takes of this system what it needs
    (become_macos if macos else become_windows)()
    runpy.run_path(sys.argv[0], run_name="__main__")
