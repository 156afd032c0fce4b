# SPDX-License-Identifier: Apache-2.0
"""On an Ascend host, CANN's process logs, graph dumps and exception dumps go under the run, one set
for each run.

So `opscope aicore RUN` needs nothing else. What the user set stays; nothing is set where there is
no Ascend software.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from opscope.formats.settings.aicore import DUMPS, GRAPHS, LOGS, collected

FOLDER = "ascend"
_SIGNS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")


def is_ascend_host(environment: Mapping[str, str]) -> bool:
    """Whether CANN is set up here (set_env.sh was sourced) or a device is there."""
    return any(environment.get(name) for name in _SIGNS) or Path("/dev/davinci_manager").exists()


def collection(environment: Mapping[str, str], run: Path) -> dict[str, str]:
    """Variables for the command, those left out that the environment has already; makes the
    folders. Empty on other hosts.
    """
    if not is_ascend_host(environment):
        return {}
    folder = run.absolute() / FOLDER
    wanted = collected(str(folder))
    with contextlib.suppress(OSError):
        for name in (LOGS, GRAPHS, DUMPS):
            (folder / name).mkdir(parents=True, exist_ok=True)
    # A dump scene of NPU_COLLECT_PATH or of the user's own wins; two of them exclude each other.
    dumps = any(
        environment.get(name)
        for name in ("NPU_COLLECT_PATH", "ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH")
    )
    return {
        name: value
        for name, value in wanted.items()
        if name not in environment and not (dumps and name.startswith("ASCEND_DUMP"))
    }


def has_logs(run: Path) -> bool:
    """Whether CANN wrote a process log under the run."""
    root = run / FOLDER / LOGS
    return any(files for _, _, files in os.walk(root))
