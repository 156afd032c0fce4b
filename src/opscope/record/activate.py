# SPDX-License-Identifier: Apache-2.0
"""Recording by `import opscope` alone, in a program whose environment has OPSCOPE="-o runs/x …", be
it torch's or MindSpore's.

It serves programs that are not started by `opscope run`, and those whose interpreter skips
sitecustomize (python -I). Under `opscope run` record/bootstrap has done all this before.
"""

# mypy: allow-untyped-calls
# (record/bootstrap has no annotations, for old interpreters)

from __future__ import annotations

import atexit
import importlib
import os
import sys
from pathlib import Path

from opscope.record.bootstrap.sitecustomize import FRAMEWORKS, AfterImport
from opscope.run.contain import is_the_programs, reason, tell

FAMILY = "opscope.cli"


def activate() -> None:
    """Begin a recording once torch has been imported, at once if it is; nothing where
    record/bootstrap waits for it.
    """
    if any(getattr(finder, "starts_opscope", False) for finder in sys.meta_path):
        return
    after = AfterImport(FRAMEWORKS, begin)
    sys.meta_path.insert(0, after)
    for framework in FRAMEWORKS:
        if framework in sys.modules:
            after.imported(framework)


def begin(framework: str) -> None:
    """Join the recording of the environment, or make the run that OPSCOPE asks for; never in
    opscope's own commands.
    """
    if FAMILY in sys.modules:
        return
    try:
        if os.environ.get("OPSCOPE_RUN"):
            _join(framework)
        else:
            _make()
    except Exception as error:
        if is_the_programs(error):
            raise
        tell(f"not recording {framework}: {reason(error)}")


def _join(framework: str) -> None:
    module, function = FRAMEWORKS[framework]
    getattr(importlib.import_module(module), function)()


def _make() -> None:
    from opscope.record.join import record
    from opscope.record.launch import child_environment
    from opscope.run.store.layout import read_run_file

    recording = record()
    # Registered before the session's own handler, so that it runs after it: the run is sealed when
    # everything is written.
    atexit.register(recording.__exit__, None, None, None)
    recording.__enter__()
    run = recording.path
    if run is not None:
        tell(f"recording into {_shown(run)}")
        # Processes that this one starts join it, as they would below `opscope run`.
        os.environ.update(
            child_environment(os.environ, recording.config, run, read_run_file(run).run_id)
        )


def _shown(run: Path) -> str:
    """The path relative to where the user is, if it lies below."""
    here = Path.cwd()
    return str(run.relative_to(here)) if run.is_relative_to(here) else str(run)
