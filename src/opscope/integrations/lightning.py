# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Lightning: Trainer(callbacks=[OpscopeCallback("runs/x", on_overflow="stop")])."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from opscope.integrations.watch import ACTIONS, SKIP, Watch

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
else:  # the package under either of its names; a program uses one
    _NAME = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
    Callback = importlib.import_module(f"{_NAME}.callbacks").Callback


class OpscopeCallback(Callback):
    """Records what Trainer.fit does.

    on_overflow: keep, skip (no update by gradients that are not finite), stop (the training ends
    after the batch with a finding) or checkpoint (into the trainer's root folder, then it ends).
    The rest is as for opscope.record.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        on_overflow: str = "keep",
        **options: Any,
    ) -> None:
        super().__init__()
        actions = (*ACTIONS, SKIP, "checkpoint")
        self.watch = Watch(path, on_overflow=on_overflow, actions=actions, **options)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Recording begins."""
        self.watch.begin()

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """A batch has been trained with."""
        counters = {"epoch": trainer.current_epoch, "batch": batch_idx}
        if self.watch.step_ended(global_step=trainer.global_step, **counters):
            trainer.should_stop = True
            if self.watch.on_overflow == "checkpoint":
                name = f"overflow-step-{trainer.global_step}.ckpt"
                trainer.save_checkpoint(os.path.join(trainer.default_root_dir, name))  # noqa: PTH118 - may be a URL

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """The run is sealed."""
        self.watch.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """What is there of the run is sealed."""
        self.watch.end()
