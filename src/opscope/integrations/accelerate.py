# SPDX-License-Identifier: Apache-2.0
"""Trackers of Accelerate: Accelerator(log_with=OpscopeTracker("runs/x"))."""

from __future__ import annotations

import os
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from opscope.integrations.watch import Watch


class OpscopeTracker(GeneralTracker):
    """Records from Accelerator.init_trackers to Accelerator.end_training, on the main process.

    What is logged with a step names the run's step there. A tracker cannot stop a program; in a
    loop of one's own, `if tracker.overflowed: break` does. options are those of opscope.record.
    """

    name = "opscope"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        self.watch = Watch(path, on_overflow="tell", actions=("tell",), **options)
        self.overflowed = False

    @property
    def tracker(self) -> Watch:
        """What stands behind it, as Accelerator.get_tracker(…, unwrap=True) gives it."""
        return self.watch

    @on_main_process
    def start(self) -> None:
        """Recording begins."""
        self.watch.begin()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Nothing of the configuration is kept: it may be secret."""

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """A step was logged; whether it has a finding stands in overflowed from now on."""
        if self.watch.step_ended(logged_step=step):
            self.overflowed = True

    @on_main_process
    def finish(self) -> None:
        """The run is sealed."""
        self.watch.end()
