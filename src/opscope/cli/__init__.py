# SPDX-License-Identifier: Apache-2.0
"""The command line: one thin module for each verb, and what every verb has in common: exit codes,
one-line errors, pipes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from opscope.cli.failing import INTERRUPTED, ended_as_by_ctrl_c, report_bug, report_error
from opscope.errors import OpscopeError, UsageError
from opscope.version import VERSION

BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code (docs/architecture.md, section 6); nothing is
    raised.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a shell closed it (>&-): what is said goes nowhere
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends
    standard_library_first()
    for stream in (sys.stdout, sys.stderr):
        # A path that is no valid Unicode, or a terminal that has no ∈, is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words == ["--version"]:  # asked for by scripts, which need nothing that parses options
            print(f"opscope {VERSION}")
            return 0
        from opscope.cli.app import dispatch

        with ended_as_by_ctrl_c():
            code = dispatch(words)
        sys.stdout.flush()
    except OpscopeError as error:
        return report_error(error, error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more when it flushes at
        # exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        reason = error.strerror or str(error)
        return report_error(
            UsageError(reason if error.filename is None else f"{error.filename}: {reason}"), 2
        )
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug is one line and a file, not a traceback
        return report_bug(error)
    return code


def standard_library_first() -> None:
    """Have no file on PYTHONPATH or in the current directory stand for a module of Python's own, a
    json.py say.
    """
    home = str(Path(os.__file__).parent)
    sys.path.sort(
        key=lambda entry: not entry.startswith(home) or entry.rstrip("/").endswith("-packages")
    )
