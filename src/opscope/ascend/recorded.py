# SPDX-License-Identifier: Apache-2.0
"""The call of a recorded program that launched a failed kernel: what it was given fills in what the
device's files do not say.

An eager program leaves no graph and often no dump, so that its case would have neither shapes nor
values. Where the kernel's own tensors are known, a tensor of the call is taken for one of them by
its type and shape; where they are not, all are taken in the order of the call, which need not be
the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import msgspec

from opscope.arrays import Array
from opscope.ascend.tensors import KernelTensor
from opscope.formats.layouts import is_private
from opscope.run.dtypes import find_dtype


class RecordedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that the call was given or made; values in the host's order, where they were
    kept.
    """

    io: str
    slot: str
    dtype: str
    shape: tuple[int, ...]
    layout: str | None = None
    values: Array | None = None

    @property
    def format(self) -> str:
        """CANN's name of how it lies on the device."""
        return self.layout if self.layout is not None and is_private(self.layout) else "ND"


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call, its line, and its arguments as the run has them (docs/schema.md, args); certain:
    whether no other call can be meant.
    """

    run: str
    name: str
    op: str
    source: str | None
    args: str | None
    tensors: tuple[RecordedTensor, ...]
    certain: bool

    @property
    def text(self) -> str:
        """`aten::_softmax.default(float32[32, 16], -1, False)  train.py:12`."""
        return f"{self.op}({self._arguments()})  {self.source or ''}".rstrip()

    @property
    def tree(self) -> dict[str, Any]:
        """The arguments as JSON's own types; empty where they are not known."""
        try:
            return msgspec.json.decode(self.args or "{}", type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}

    def _arguments(self) -> str:
        given, named = self.tree.get("args"), self.tree.get("kwargs")
        words = [self._said(each) for each in given] if isinstance(given, list) else []
        if isinstance(named, dict):
            words += [f"{name}={self._said(each)}" for name, each in named.items()]
        return ", ".join(words)

    def _said(self, value: object) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(self._said, value))}]"
        if isinstance(value, dict) and len(value) == 1:
            ((kind, told),) = value.items()
            shown = [each for each in self.tensors if (each.io, each.slot) == ("input", told)]
            if kind == "tensor" and shown:
                return f"{shown[0].dtype}{list(shown[0].shape)}"
            return str(told)
        return str(value)


class Filled(msgspec.Struct, frozen=True):
    """The kernel's tensors with what the call says of them; by io and index those that it gave."""

    tensors: tuple[KernelTensor, ...]
    given: dict[tuple[str, int], RecordedTensor]
    in_order_of_call: bool


def filled(tensors: Sequence[KernelTensor], call: RecordedCall) -> Filled:
    """What is known of a kernel's tensors by the call that launched it."""
    known = [tensor for tensor in tensors if tensor.io in ("input", "output") and tensor.part == 0]
    if not known:
        made = list(_of_call(call))
        return Filled(
            (*(tensor for tensor, _ in made), *tensors),
            {(tensor.io, tensor.index): recorded for tensor, recorded in made},
            in_order_of_call=True,
        )
    given = {
        key: recorded
        for io in ("input", "output")
        for key, recorded in _matched(
            [tensor for tensor in known if tensor.io == io],
            [tensor for tensor in call.tensors if tensor.io == io],
        )
    }
    completed = tuple(_completed(one, given.get((one.io, one.index))) for one in tensors)
    return Filled(completed, given, in_order_of_call=False)


def _of_call(call: RecordedCall) -> Iterator[tuple[KernelTensor, RecordedTensor]]:
    for io in ("input", "output"):
        for index, tensor in enumerate(one for one in call.tensors if one.io == io):
            made = KernelTensor(
                io=io,
                index=index,
                name=tensor.slot,
                dtype=tensor.dtype,
                format=tensor.format,
                shape=tensor.shape,
                origin_shape=tensor.shape,
                size=_bytes(tensor),
            )
            yield made, tensor


def _bytes(tensor: RecordedTensor) -> int | None:
    dtype = find_dtype(tensor.dtype)
    return dtype.nbytes(prod(tensor.shape)) if dtype is not None and dtype.bits else None


def _matched(
    kernel: Sequence[KernelTensor], recorded: Sequence[RecordedTensor]
) -> Iterator[tuple[tuple[str, int], RecordedTensor]]:
    """Each with the only one that it can be; all in their order where that fits and says enough."""
    if len(kernel) == len(recorded) and all(map(_fits, kernel, recorded)):
        yield from (((one.io, one.index), two) for one, two in zip(kernel, recorded, strict=True))
        return
    for one in kernel:
        fitting = [two for two in recorded if _fits(one, two)]
        rivals = [other for other in kernel if fitting and _fits(other, fitting[0])]
        if len(fitting) == len(rivals) == 1:
            yield (one.io, one.index), fitting[0]


def _fits(one: KernelTensor, two: RecordedTensor) -> bool:
    if one.dtype not in (None, two.dtype):
        return False
    if one.shape is None:
        return one.size is None or one.size == _bytes(two)
    return two.shape in (one.shape, one.origin_shape)


def _completed(one: KernelTensor, two: RecordedTensor | None) -> KernelTensor:
    if two is None or one.part:
        return one
    return msgspec.structs.replace(
        one,
        dtype=one.dtype or two.dtype,
        format=one.format or two.format,
        shape=two.shape if one.shape is None else one.shape,
        origin_shape=two.shape if one.origin_shape is None else one.origin_shape,
    )
