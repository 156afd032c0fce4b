# SPDX-License-Identifier: Apache-2.0
"""Engines of Ignite: watch(trainer, "runs/x", on_overflow="stop")."""

from __future__ import annotations

import os
from typing import Any

from ignite.engine import Engine, Events

from opscope.integrations.watch import ACTIONS, SKIP, Watch


def watch(
    trainer: Engine,
    path: str | os.PathLike[str] | None = None,
    *,
    on_overflow: str = "keep",
    **options: Any,
) -> Watch:
    """Record what a training engine runs.

    on_overflow: keep, skip (no update by gradients that are not finite) or stop (the engine ends
    after the iteration with a finding). The rest is as for opscope.record.
    """
    watched = Watch(path, on_overflow=on_overflow, actions=(*ACTIONS, SKIP), **options)

    def iteration_ended(engine: Engine) -> None:
        if watched.step_ended(iteration=engine.state.iteration, epoch=engine.state.epoch):
            engine.terminate()

    trainer.add_event_handler(Events.STARTED, lambda _: watched.begin())
    trainer.add_event_handler(Events.ITERATION_COMPLETED, iteration_ended)
    for event in (Events.COMPLETED, Events.TERMINATE, Events.EXCEPTION_RAISED):
        trainer.add_event_handler(event, lambda *_: watched.end())
    return watched
