# SPDX-License-Identifier: Apache-2.0
"""The tensors a kernel was called with, put together from the log, its argument words, its
description and the graph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec

from opscope.ascend.fault import Argument, Fault, slot_name
from opscope.ascend.graphs import Node, TensorDesc
from opscope.ascend.kernels import Kernel, Parameter
from opscope.run.dtypes import DType, find_dtype

_TILING_END = 0xA5A5A5A5
_MAX_FFTS = 2


class KernelTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the call: io is input, output, workspace, tiling or unknown.

    address is where the kernel accesses it; said_address is what the log's description says, which
    for a value the host needs (shape, axis) lies in host memory. size is in bytes. dtype is
    opscope's name.
    """

    io: str
    index: int
    part: int = 0
    name: str | None = None
    dtype: str | None = None
    format: str | None = None
    shape: tuple[int, ...] | None = None
    origin_shape: tuple[int, ...] | None = None
    origin_format: str | None = None
    address: int | None = None
    said_address: int | None = None
    size: int | None = None
    position: int | None = None
    optional: bool = False
    unreadable: str | None = None

    @property
    def label(self) -> str:
        """`input 0`, `input 0.1`."""
        return slot_name(self.io, self.index, self.part)


class Tiling(msgspec.Struct, frozen=True, kw_only=True):
    """The tiling data as far as it can be put together; cut when bytes are missing. words counts
    from the argument block.
    """

    data: bytes = b""
    size: int | None = None
    address: int | None = None
    word: int | None = None
    source: str = ""
    cut: bool = False


def on_host(address: int) -> bool:
    """Whether an address is one of the host's: the heap, stack and libraries of x86-64 and arm64,
    or a kernel pointer.
    """
    top = address >> 40
    return (
        top in (0x55, 0x56, 0x7E, 0x7F, 0xAA, 0xAB)
        or 0xFFF0 <= address >> 32 <= 0xFFFF
        or address >> 63 == 1
    )


def words_of(fault: Fault) -> tuple[int, ...]:
    """The argument words: those after execution when they are the kernel's own, else those
    before.
    """
    after, before = fault.words_after, fault.words_before
    if not after or (before and any(note.topic == "host-args" for note in fault.notes)):
        return before or after
    return after if len(after) >= len(before) else before


def para_base(fault: Fault) -> int | None:
    """Device address of the argument block, the first a core reports."""
    return next((base for core in fault.cores if (base := core.register("para base"))), None)


def tensors_of(fault: Fault, node: Node | None, kernel: Kernel | None) -> tuple[KernelTensor, ...]:
    """The tensors of the call in the order of its arguments; what no source knows stays None."""
    described = [*_assigned(fault.arguments, kernel), *_workspaces(fault)]
    if not described:
        described = [*_from_node(node)]
    shift = _shift(fault, described)
    words = words_of(fault)
    tensors = []
    number = 0
    for argument in described:
        position = argument.position
        if position is None and shift is not None and argument.part == 0:
            position = number + shift
            number += 1
        word = words[position] if position is not None and position < len(words) else None
        tensors.append(
            _joined(
                argument, node, kernel, position=position, word=word if shift is not None else None
            )
        )
    return tuple(tensors)


def _assigned(arguments: Sequence[Argument], kernel: Kernel | None) -> list[Argument]:
    """Arguments of a brief dump without kinds get them from the kernel's description, where the
    counts allow it.
    """
    unknown = [argument for argument in arguments if argument.io == "unknown"]
    if not unknown or kernel is None or not kernel.inputs:
        return list(arguments)
    inputs, outputs = len(kernel.inputs), len(kernel.outputs)
    if len({argument.index for argument in unknown}) < inputs + outputs:
        return list(arguments)
    order = {
        index: number
        for number, index in enumerate(dict.fromkeys(argument.index for argument in unknown))
    }
    return [
        argument
        if argument.io != "unknown"
        else _placed(argument, order[argument.index], inputs, outputs)
        for argument in arguments
    ]


def _placed(argument: Argument, number: int, inputs: int, outputs: int) -> Argument:
    if number < inputs:
        return msgspec.structs.replace(argument, io="input", index=number)
    if number < inputs + outputs:
        return msgspec.structs.replace(argument, io="output", index=number - inputs)
    return msgspec.structs.replace(argument, io="workspace", index=number - inputs - outputs)


def _workspaces(fault: Fault) -> list[Argument]:
    """Workspaces that the description lists apart: workspace_addrs and workspace_bytes."""
    if any(argument.io == "workspace" for argument in fault.arguments):
        return []
    addresses, sizes = (
        _list(fault.described.get(key, "")) for key in ("workspace_addrs", "workspace_bytes")
    )
    return [
        Argument(
            io="workspace",
            index=number,
            address=address,
            size=sizes[number] if number < len(sizes) else None,
        )
        for number, address in enumerate(addresses)
    ]


def _list(text: str) -> list[int]:
    return [
        int(number, 16) if number.lower().startswith("0x") else int(number[:20])
        for number in re.findall(r"0x[0-9a-fA-F]{1,16}|\d+", text)[:256]
    ]


def _from_node(node: Node | None) -> list[Argument]:
    """Without a word about arguments in the logs, the graph at least says which there are."""
    if node is None:
        return []
    sides = (("input", node.inputs), ("output", node.outputs))
    return [Argument(io=io, index=number) for io, descs in sides for number, _ in enumerate(descs)]


def _shift(fault: Fault, described: Sequence[Argument]) -> int | None:
    """Which word of the arguments the first tensor is: 0, or 1 behind an address for FFTS; None
    when the words do not fit.
    """
    words = words_of(fault)
    tensors = [tensor for tensor in described if tensor.part == 0]
    if not words or not tensors:
        return None
    if tensors[0].position is not None:
        return tensors[0].position
    known = [
        (number, tensor.address)
        for number, tensor in enumerate(tensors)
        if tensor.address and not on_host(tensor.address)
    ]
    for shift in range(_MAX_FFTS + 1):
        hits = sum(
            1
            for number, address in known
            if number + shift < len(words) and words[number + shift] == address
        )
        if known and hits == len(known):
            return shift
    return None


def _joined(
    argument: Argument,
    node: Node | None,
    kernel: Kernel | None,
    *,
    position: int | None,
    word: int | None,
) -> KernelTensor:
    desc = (
        _at(node.inputs if argument.io == "input" else node.outputs, argument.index)
        if node and argument.io in ("input", "output")
        else None
    )
    parameter = _parameter(kernel, argument)
    # A binary is compiled for one type of each tensor; the graph may be of before a cast was fused
    # in.
    dtype = _dtype(
        argument.dtype, parameter.dtype if parameter else None, desc.dtype if desc else None
    )
    shape = _shape(argument, desc, parameter, dtype)
    said = argument.address
    address = word if said is not None and word and on_host(said) and not on_host(word) else said
    return KernelTensor(
        io=argument.io,
        index=argument.index,
        part=argument.part,
        name=_named(argument, node, parameter),
        dtype=dtype.name if dtype else None,
        format=argument.format
        or (desc.format if desc else None)
        or (parameter.format if parameter else None),
        shape=shape,
        origin_shape=desc.origin_shape
        if desc and desc.origin_shape and min(desc.origin_shape) >= 0
        else None,
        origin_format=desc.origin_format if desc else None,
        address=address,
        said_address=said,
        size=argument.size if argument.size is not None else _bytes(shape, dtype),
        position=position,
        optional=bool(parameter and parameter.kind == "optional"),
        unreadable=argument.unreadable,
    )


def _at(values: Sequence[TensorDesc], index: int) -> TensorDesc | None:
    return values[index] if index < len(values) else None


def _parameter(kernel: Kernel | None, argument: Argument) -> Parameter | None:
    if kernel is None or argument.io not in ("input", "output"):
        return None
    known = kernel.inputs if argument.io == "input" else kernel.outputs
    return next((parameter for parameter in known if parameter.index == argument.index), None)


def _named(argument: Argument, node: Node | None, parameter: Parameter | None) -> str | None:
    if parameter is not None and parameter.name:
        return parameter.name
    if node is not None and argument.io == "input" and argument.index < len(node.input_names):
        return node.input_names[argument.index]
    return None


def _dtype(*names: str | None) -> DType | None:
    for name in names:
        if name and (dtype := find_dtype(name)) is not None:
            return dtype
    return None


def _shape(
    argument: Argument, desc: TensorDesc | None, parameter: Parameter | None, dtype: DType | None
) -> tuple[int, ...] | None:
    """The shape of this call: the log's, else a static one that fills the size, else one dimension
    of the size's elements.
    """
    if argument.shape is not None:
        return argument.shape
    for shape in (desc.shape if desc else None, parameter.shape if parameter else None):
        if (
            shape is not None
            and all(dim >= 0 for dim in shape)
            and (argument.size is None or _bytes(shape, dtype) == argument.size)
        ):
            return shape
    if (
        argument.size is not None
        and dtype is not None
        and dtype.bits
        and argument.size * 8 % dtype.bits == 0
    ):
        return (argument.size * 8 // dtype.bits,)
    return None


def _bytes(shape: tuple[int, ...] | None, dtype: DType | None) -> int | None:
    if shape is None or dtype is None or not dtype.bits or any(dim < 0 for dim in shape):
        return None
    return dtype.nbytes(prod(shape))


def tiling_of(fault: Fault, kernel: Kernel | None, node: Node | None = None) -> Tiling:
    """The tiling data from the argument words, else from the log's own print of it, whichever has
    more bytes.
    """
    size = _tiling_size(fault, kernel, node)
    words, base = words_of(fault), para_base(fault)
    logged = Tiling(
        data=fault.tiling,
        size=size,
        source="tiling_data of the log",
        cut=fault.tiling_cut or _short(fault.tiling, size),
    )
    tiling_at = _tiling_word(fault, words, base)
    if tiling_at is None or base is None:
        return logged if fault.tiling else Tiling(size=size)
    word, address = tiling_at
    stop = _tiling_stop(words, word, base, size)
    data = b"".join((value & (1 << 64) - 1).to_bytes(8, "little") for value in words[word:stop])[
        :size
    ]
    in_words = Tiling(
        data=data,
        size=size,
        address=address,
        word=word,
        source=f"argument words {word} to {stop - 1}",
        cut=_short(data, size),
    )
    if len(fault.tiling) > len(data):
        return msgspec.structs.replace(logged, address=address, word=word)
    return in_words


def _short(data: bytes, size: int | None) -> bool:
    return size is not None and len(data) < size


def _tiling_size(fault: Fault, kernel: Kernel | None, node: Node | None) -> int | None:
    """Bytes of tiling: as the log loads them, else as the kernel was compiled (which counts an
    atomic index of 8 bytes).
    """
    loaded = next(
        (
            argument.size
            for argument in fault.arguments
            if argument.io == "tiling" and argument.size
        ),
        None,
    )
    if loaded is not None:
        return loaded
    if kernel is not None and kernel.tiling_size:
        return kernel.tiling_size
    size: Any = node.attributes.get("op_para_size") if node is not None else None
    return size if isinstance(size, int) and size > 0 else None


def _tiling_word(fault: Fault, words: Sequence[int], base: int | None) -> tuple[int, int] | None:
    """The word the tiling begins at and its address: the pointer into the argument block that no
    tensor has.
    """
    if base is None or not words:
        return None
    inside = [
        address for address in words if base <= address < base + 8 * len(words) and address % 8 == 0
    ]
    loaded = next(
        (argument.address for argument in fault.arguments if argument.io == "tiling"), None
    )
    others = {argument.address for argument in fault.arguments if argument.io != "tiling"}
    chosen = (
        loaded
        if loaded in inside
        else next((address for address in reversed(inside) if address not in others), None)
    )
    return None if chosen is None else ((chosen - base) // 8, chosen)


def _tiling_stop(words: Sequence[int], word: int, base: int, size: int | None) -> int:
    """The word behind the tiling: by its size, else where the next block begins or at the mark that
    ends it.
    """
    if size is not None:
        return min(len(words), word + -(-size // 8))
    begins = [
        (address - base) // 8
        for address in words[:word]
        if base + 8 * word < address < base + 8 * len(words)
    ]
    stop = min(begins, default=len(words))
    return next(
        (number for number in range(word, stop) if words[number] >> 32 == _TILING_END), stop
    )
