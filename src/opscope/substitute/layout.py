# SPDX-License-Identifier: Apache-2.0
"""Plain data of one operator call: its argument tree, its tensors as views of pieces of memory, and
what it gave.

It travels between processes as it stands; memories themselves travel beside it. Nothing here knows
a framework.
"""

from __future__ import annotations

from typing import Any

import msgspec

GRADIENT = "gradient of "  # before the name of a function: the call is its gradient
# Its further arguments: gradients that came in, slots whose gradient goes out, whether those of the
# arguments are meant.
GRADS, WANTED, ARGUMENTS = "opscope_grads", "opscope_wanted", "opscope_arguments"
WRITTEN = "written:"  # before the slot of an argument that the call wrote to, among the outputs


class Laid(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor as a view of a memory: shape, stride and offset in elements of dtype."""

    memory: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    device: str = "cpu"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """size bytes; skew is the address of the original modulo 64, since kernels choose paths by
    alignment.
    """

    size: int
    skew: int = 0


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the program that change what a kernel computes."""

    threads: int = 1
    matmul_precision: str = "highest"
    mkldnn: bool = True
    flush_denormal: bool = False
    default_dtype: str = "float32"  # of what is created from nothing and of quotients of integers


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: operator `namespace::name.overload`, argument tree of docs/schema.md, tensors by
    slot, memories they lie in.

    random holds the state of the CPU generator before the call where the operator draws from it.
    device is where the program made the call, if its tensors do not say so any more.
    """

    op: str
    args: dict[str, Any]
    tensors: dict[str, Laid]
    memories: tuple[Memory, ...]
    flags: Flags = Flags()
    random: bytes | None = None
    device: str = "cpu"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave: outputs by slot; memories beyond those of the call hold new tensors,
    replaced the state of written ones.

    replaced: memory of the call -> memory that holds it as it was after the call.
    """

    outputs: dict[str, Laid]
    memories: tuple[Memory, ...] = ()
    replaced: dict[int, int] = {}


def extent(laid: Laid) -> int:
    """Elements from the offset to past the last element."""
    if 0 in laid.shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(laid.shape, laid.stride, strict=True))
