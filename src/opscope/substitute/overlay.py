# SPDX-License-Identifier: Apache-2.0
"""What a substitute gave, in the form the operator's own result would have: its types, strides and
aliases.

The operator's own kernel says these; a kind in other element types then fills in its values.
"""

from __future__ import annotations

import torch

from opscope.errors import UnavailableError
from opscope.substitute.cpu import Cpu
from opscope.substitute.layout import Given, Laid, Memory
from opscope.substitute.perform import Bound, Gathered, Performed, lay, piece_of, storage_key
from opscope.substitute.registry import substitute_named
from opscope.substitute.truth import FAILURES


def run_substitute(bound: Bound, kind: str) -> Performed:
    """The call on a substitute, in the form of the operator's own result; UnavailableError when it
    has none for it.
    """
    substitute = substitute_named(kind)
    reason = substitute.lacks(bound.call.op)
    if reason is not None:
        raise UnavailableError(reason)
    if substitute.name == "cpu":
        return substitute.run(bound)
    performed = substitute.run(bound)
    try:
        shape = Cpu().run(bound)
    except FAILURES:
        return performed
    for slot, tensor in shape.outputs.items():
        value = performed.outputs.get(slot)
        if value is None or value.shape != tensor.shape:
            continue
        if value is not tensor:
            tensor.copy_(value)
    return shape


def package(bound: Bound, performed: Performed) -> tuple[Given, list[torch.Tensor]]:
    """What was given as plain data and the memories it needs: new tensors, and arguments that were
    written.
    """
    owners = {storage_key(tensor): (slot, tensor) for slot, tensor in performed.tensors.items()}
    written = {
        bound.call.tensors[slot].memory
        for slot in performed.tensors
        if f"written:{slot}" in performed.outputs
    }
    outputs: dict[str, Laid] = {}
    memories: list[Memory] = []
    pieces: list[torch.Tensor] = []
    replaced: dict[int, int] = {}
    first = len(bound.call.memories)
    fresh: list[tuple[str, torch.Tensor]] = []
    for slot, tensor in performed.outputs.items():
        owner = owners.get(storage_key(tensor))
        if owner is None:
            fresh.append((slot, tensor))
            continue
        laid = bound.call.tensors[owner[0]]
        # The argument's memory begins so many of its elements before it.
        base = (int(owner[1].storage_offset()) - laid.offset) * owner[1].element_size()
        outputs[slot] = lay(tensor, laid.memory, base)
        if laid.memory in written and laid.memory not in replaced:
            replaced[laid.memory] = first + len(memories)
            memories.append(bound.call.memories[laid.memory])
            pieces.append(piece_of(owner[1], base, bound.call.memories[laid.memory].size))
    new = Gathered(fresh, first=first + len(memories))
    outputs.update(new.laid)
    return Given(outputs=outputs, memories=(*memories, *new.memories), replaced=replaced), [
        *pieces,
        *new.pieces,
    ]
