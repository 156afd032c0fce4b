# SPDX-License-Identifier: Apache-2.0
"""Where the outputs of a call lie: in memory of its arguments or in their own, beside where the
trusted kernel's lie.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from opscope.judge.replayed import Replayed
from opscope.substitute.layout import GRADIENT, WRITTEN, Laid
from opscope.substitute.perform import Bound, Performed
from opscope.substitute.schema import only_views

COPY = "a copy, where the substitute's result shares memory with an argument, as its schema says"
SHARED = "it shares memory with an argument, where the substitute's result is new"


def start_of(tensor: torch.Tensor, laid: Laid) -> int:
    """The address at which the memory of a tensor begins."""
    return tensor.data_ptr() - laid.offset * tensor.element_size()


def judge_sharing(bound: Bound, outputs: Mapping[str, Laid], trusted: Performed) -> Replayed | None:
    """What is to be said against where results lie; None where they lie as the trusted kernel's do.

    Other devices may copy what the CPU need not, so only results of the CPU are judged.
    """
    if bound.call.op.startswith(GRADIENT):
        return None
    spans = [
        (start, start + bound.call.memories[laid.memory].size)
        for slot, laid in bound.call.tensors.items()
        if 0 not in laid.shape
        for start in (start_of(trusted.tensors[slot], laid),)
    ]
    for slot, laid in outputs.items():
        tensor = trusted.outputs.get(slot)
        if (
            slot.startswith(WRITTEN)
            or tensor is None
            or tensor.numel() == 0
            or laid.device != "cpu"
            or 0 in laid.shape
        ):
            continue
        shares = laid.memory < len(bound.call.memories)
        if shares is any(start <= tensor.data_ptr() < end for start, end in spans):
            continue
        if shares or only_views(bound.func):
            return Replayed(
                verdict="wrong", slot=slot, reason=SHARED if shares else COPY, size=tensor.numel()
            )
    return None
