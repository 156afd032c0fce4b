# SPDX-License-Identifier: Apache-2.0
"""MindSpore: Model.train(…, callbacks=[OpscopeCallback("runs/x")])."""

from __future__ import annotations

import os
from typing import Any

from mindspore.train import Callback

from opscope.integrations.watch import Watch


class OpscopeCallback(Callback):
    """Records what Model.train does, from its beginning to its end.

    Options are those of opscope.record. Nothing stops such a training: what a kernel gave is read
    when the recording ends.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__()
        self.watch = Watch(path, actions=("keep",), **options)

    def on_train_begin(self, run_context: Any) -> None:
        """Recording begins."""
        self.watch.begin()

    def on_train_end(self, run_context: Any) -> None:
        """The run is sealed."""
        self.watch.end()
