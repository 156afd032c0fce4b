# SPDX-License-Identifier: Apache-2.0
"""What it takes to launch a kernel's binary again without op_test_frame: its argument block, with
the pointers marked.

A block is a list of 64-bit words. Those of the log are taken over as they are (tiling data, shapes
of dynamic lists, scalars), but for pointers, which belong to another process: each becomes a place
in a buffer of this one. Without words of the log the block is made of the pointers in their order
and one to the tiling data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opscope.ascend.fault import Fault
from opscope.ascend.kernels import Kernel, kernel_names, stripped
from opscope.ascend.tensors import KernelTensor, Tiling, on_host, para_base, words_of

_SPARE = 1 << 16  # bytes behind a pointer of which nothing is known but that it is one
_DEVICE = range(0x10_0000_0000_00, 0x20_0000_0000_00)  # where device memory is mapped
_FFTS = 0xE7  # top byte of the address that FFTS kernels get as their first argument
_LARGEST = 1 << 33


class LaunchBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """Device memory of the launch: its bytes come from file, else they are halves for inputs of a
    floating dtype, and zeros.
    """

    label: str
    io: str
    size: int
    file: str | None = None
    dtype: str | None = None


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word of the block: kind is value, buffer (number), block (byte of the block itself), or
    sync (address for FFTS).
    """

    kind: str
    value: int


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of one kernel; functions are the names it may have in the binary, the likeliest
    first; lacks is what is not known.
    """

    functions: tuple[str, ...]
    block_dim: int
    words: tuple[Word, ...]
    buffers: tuple[LaunchBuffer, ...]
    magic: str | None = None
    lacks: tuple[str, ...] = ()


def launch_of(
    fault: Fault,
    tensors: Sequence[KernelTensor],
    tiling: Tiling,
    *,
    kernel: Kernel | None,
    files: Mapping[str, str],
) -> Launch | None:
    """The launch of this error's kernel; None where not even the sizes of its arguments are known.

    files holds for a tensor's label the file of its bytes, below the folder of the case.
    """
    known = [
        one for one in tensors if one.io != "tiling" and one.part == 0 and one.size is not None
    ]
    if not known or sum(one.size or 0 for one in known) > _LARGEST:
        return None
    buffers = [
        LaunchBuffer(
            label=one.label,
            io=one.io,
            size=one.size or 0,
            file=files.get(one.label),
            dtype=one.dtype,
        )
        for one in known
    ]
    lacks = []
    words = words_of(fault)
    if words:
        block = _from_words(words, known, buffers, base=para_base(fault), tiling=tiling)
        if fault.args_size and fault.args_size > 8 * len(words):
            lacks.append(f"argument words behind the first {len(words)}: the log was cut")
    else:
        block = _in_order(known, buffers, tiling)
        if kernel is not None and kernel.tiling_size and not tiling.data:
            lacks.append("the tiling data")
    dim = fault.block_dim or (kernel.block_dim if kernel is not None else None)
    if not dim or dim < 0:
        lacks.append("the number of cores (block_dim): 1 is taken")
    magic = kernel.magic if kernel is not None else fault.described.get("tvm_magic")
    return Launch(
        functions=tuple(_functions(fault, kernel)),
        block_dim=dim if dim and dim > 0 else 1,
        words=tuple(block),
        buffers=tuple(buffers),
        magic=magic,
        lacks=tuple(lacks),
    )


def _from_words(
    words: Sequence[int],
    known: Sequence[KernelTensor],
    buffers: list[LaunchBuffer],
    *,
    base: int | None,
    tiling: Tiling,
) -> Iterator[Word]:
    by_address = {
        one.address: number for number, one in reversed([*enumerate(known)]) if one.address
    }
    by_word = {
        one.position: number
        for number, one in enumerate(known)
        if one.position is not None and one.address
    }
    last = max((one.position for one in known if one.position is not None), default=len(known))
    pointers = (
        tiling.word if tiling.word is not None else last + 4
    )  # behind them lie values, of which none is a pointer
    for number, word in enumerate(words):
        if number == 0 and word >> 40 == _FFTS:
            yield Word(kind="sync", value=0)
        elif base is not None and base <= word < base + 8 * len(words):
            yield Word(kind="block", value=word - base)
        elif number in by_word or word in by_address:
            yield Word(kind="buffer", value=by_word.get(number, by_address.get(word, 0)))
        elif number < pointers and word in _DEVICE and not on_host(word):
            buffers.append(LaunchBuffer(label=f"word {number}", io="spare", size=_SPARE))
            by_address[word] = len(buffers) - 1
            yield Word(kind="buffer", value=by_address[word])
        else:
            yield Word(kind="value", value=word & (1 << 64) - 1)


def _in_order(
    known: Sequence[KernelTensor], buffers: list[LaunchBuffer], tiling: Tiling
) -> Iterator[Word]:
    for number, one in enumerate(known):
        yield Word(kind="value", value=0) if not one.size else Word(kind="buffer", value=number)
    if tiling.data:
        buffers.append(
            LaunchBuffer(label="tiling", io="tiling", size=len(tiling.data), file="tiling.bin")
        )
        yield Word(kind="buffer", value=len(buffers) - 1)


def _functions(fault: Fault, kernel: Kernel | None) -> Iterator[str]:
    """The names the function may have in its binary: the description's and the log's, with the
    tiling key and without `_mix_…`.
    """
    names = [
        *((kernel.functions or (kernel.name,)) if kernel is not None else ()),
        *kernel_names(fault),
    ]
    if fault.tiling_key is not None:
        keyed = f"_{fault.tiling_key}"
        first = [name for name in names if name.endswith(keyed)]
        names = [
            *first,
            *(
                f"{name}{keyed}"
                for name in names
                if not name.endswith((keyed, "__kernel0", "_mix_aic", "_mix_aiv"))
            ),
            *names,
        ]
    plain = [name for name in names if not name.endswith(("_mix_aic", "_mix_aiv"))]
    yield from dict.fromkeys(
        [*plain, *names, *(one for name in names for one in stripped(name, fault.tiling_key))]
    )
