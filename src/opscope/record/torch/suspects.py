# SPDX-License-Identifier: Apache-2.0
"""A call that is judged while its values are still in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opscope.judge.arguments import Arguments, parse_arguments
from opscope.record.torch.memory import view


@dataclass(eq=False)
class SeenTensor:
    """One tensor of a suspicious call: a judge.reading.Reading, its memory, and where its values
    were kept.
    """

    io: str
    slot: str
    dtype: str
    tensor: Any
    size: int | None = None
    nan: int | None = None
    pos_inf: int | None = None
    neg_inf: int | None = None
    zero: int | None = None
    neg: int | None = None
    pos: int | None = None
    near_limit: int | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2norm: float | None = None
    min_int: int | None = None
    max_int: int | None = None
    digest: int | None = None
    sample: tuple[float, ...] | None = None
    value: tuple[str, str] | None = None


@dataclass(eq=False)
class Suspect:
    """A call that made non-finite values, or whose integers may have wrapped."""

    op: str
    writes: frozenset[str]
    args: str | None
    inputs: list[SeenTensor]
    outputs: list[SeenTensor]
    before: Mapping[str, Any] = field(default_factory=dict)
    kept: bool = False  # values of this call were kept

    @property
    def arguments(self) -> Arguments:
        return parse_arguments(self.args)

    def before_call(self, seen: SeenTensor) -> Any:
        """An input's tensor as it was before the call; None when it was overwritten and not copied,
        or is not on the host.
        """
        slot = seen.slot
        if slot in self.before:
            return self.before[slot]
        head = (
            ".".join(slot.split(".")[:2]) if slot.startswith("kwargs.") else slot.partition(".")[0]
        )
        return None if head in self.writes or seen.size is None else seen.tensor

    def arrays(self) -> dict[str, Any]:
        """Values of the inputs by slot as they were before the call, where they are known."""
        tensors = {seen.slot: self.before_call(seen) for seen in self.inputs}
        arrays = {
            slot: view(tensor)
            for slot, tensor in tensors.items()
            if tensor is not None and tensor.device.type == "cpu"
        }
        return {slot: array for slot, array in arrays.items() if array is not None}
