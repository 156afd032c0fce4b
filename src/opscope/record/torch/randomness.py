# SPDX-License-Identifier: Apache-2.0
"""State of the generator that a random operator draws from, as it was before the call.

It is read before every call that may draw, which takes a microsecond or two, and stored only where
values of the call are
kept: then a repro draws the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from opscope.record.torch.devices import captures


def random_states(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Generator states by the names of a repro's case: "cpu", "cuda", "npu", or "generator:cpu"
    for one that was handed over.

    Empty where a state cannot be read without disturbing the program: a stream that is being
    captured; and of devices without generators.
    """
    given = (*args, *kwargs.values())
    generator = next((each for each in given if isinstance(each, torch.Generator)), None)
    device = (
        generator.device if generator is not None else next(devices(given), torch.device("cpu"))
    )
    if captures(device):
        return {}
    if generator is not None:
        return {f"generator:{device.type}": generator.get_state()}
    if device.type == "cpu":
        return {"cpu": torch.default_generator.get_state()}
    module = getattr(torch, device.type, None)
    generators = getattr(module, "default_generators", None)
    if not generators:
        return {}
    index = module.current_device() if device.index is None else device.index
    return {device.type: generators[index].get_state()}


def devices(given: Sequence[Any]) -> Iterator[torch.device]:
    """Devices that arguments name or lie on."""
    for each in given:
        if isinstance(each, torch.device):
            yield each
        elif isinstance(each, torch.Tensor):
            yield each.device
        elif isinstance(each, (list, tuple)):
            yield from devices(each)
