# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on torch: model.fit(…, callbacks=[OpscopeCallback("runs/x", on_overflow="stop")])."""

from __future__ import annotations

import os
from typing import Any

import keras

from opscope.errors import UnavailableError
from opscope.integrations.watch import Watch


class OpscopeCallback(keras.callbacks.Callback):
    """Records what Model.fit does; a batch is a step, since the optimizers of Keras are none of
    torch's.

    on_overflow: keep or stop (the training ends after the batch with a finding). The rest is as for
    opscope.record. Raises UnavailableError on another backend than torch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        on_overflow: str = "keep",
        **options: Any,
    ) -> None:
        super().__init__()
        if keras.backend.backend() != "torch":
            raise UnavailableError(
                f"Keras runs on {keras.backend.backend()}; opscope records its torch backend: set "
                "KERAS_BACKEND=torch before Keras is imported"
            )
        self.watch = Watch(path, on_overflow=on_overflow, **options)
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Recording begins."""
        self.watch.begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Batches are counted anew."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A batch has been trained with."""
        self.watch.mark_step()
        if self.watch.step_ended(epoch=self._epoch, batch=batch):
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """The run is sealed."""
        self.watch.end()
