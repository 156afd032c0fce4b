# SPDX-License-Identifier: Apache-2.0
"""The forward call that a backward primitive belongs to, found by the bytes both have in their
hands.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opscope.run.schema import Call, Tensor


class Relatives:
    """Forward calls of a step, by the versions they read and made."""

    def __init__(self) -> None:
        self._by_version: dict[int, list[Call]] = {}

    def clear(self) -> None:
        """A step is over."""
        self._by_version.clear()

    def placed(self, call: Call, read: Sequence[Tensor], made: Sequence[Tensor]) -> Call:
        """The call, remembered if it is forward; a backward one gets the module, line and index of
        its forward call.

        That is the latest call of the same primitive (ReluGrad, ReLU) among those that hold what it
        reads. Where there is none but all of those are of one module, that is its module; else it
        stays as it is.
        """
        if call.phase == "forward":
            for version in {row.version for row in (*read, *made) if row.version is not None}:
                self._by_version.setdefault(version, []).append(call)
        if call.phase != "backward" or call.module:
            return call
        near = [
            relative
            for row in read
            if row.version is not None
            for relative in self._by_version.get(row.version, ())
        ]
        same = [relative for relative in near if base_name(relative.op) == base_name(call.op)]
        if same:
            forward = max(same, key=lambda relative: relative.index)
            return msgspec.structs.replace(
                call, module=forward.module, forward_index=forward.index, source=forward.source
            )
        modules = {relative.module for relative in near}
        return msgspec.structs.replace(call, module=modules.pop()) if len(modules) == 1 else call


def base_name(op: str) -> str:
    """A primitive's name without what says that it is a gradient: ReluGrad and ReLU are
    relatives.
    """
    name = op.lower().removesuffix("ext").removesuffix("v2").removesuffix("v3")
    for mark in ("grad", "backpropinput", "backpropfilter", "backward"):
        name = name.replace(mark, "")
    return name
