# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers.

trainer = Trainer(…, callbacks=[OpscopeCallback("runs/x", on_overflow="stop")])

or, after register(), TrainingArguments(report_to="opscope").
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from opscope.integrations.watch import ACTIONS, SKIP, Watch


class OpscopeCallback(TrainerCallback):
    """Records what Trainer.train does.

    on_overflow: keep, skip (no update by gradients that are not finite), stop (the training ends
    after the step with a finding) or checkpoint (it is saved too, then ends). The rest is as
    for opscope.record.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        on_overflow: str = "keep",
        **options: Any,
    ) -> None:
        actions = (*ACTIONS, SKIP, "checkpoint")
        self.watch = Watch(path, on_overflow=on_overflow, actions=actions, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Recording begins."""
        self.watch.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """An optimizer's step, of one batch or of several accumulated."""
        if self.watch.step_ended(global_step=state.global_step, epoch=state.epoch):
            control.should_training_stop = True
            control.should_save = control.should_save or self.watch.on_overflow == "checkpoint"
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The run is sealed."""
        self.watch.end()


def register() -> None:
    """Have TrainingArguments(report_to="opscope") mean this callback, recording into
    runs/recording.
    """
    from transformers.integrations import integration_utils

    integration_utils.INTEGRATION_TO_CALLBACK["opscope"] = OpscopeCallback
