# SPDX-License-Identifier: Apache-2.0
"""`.core` files joined with the errors of the logs: registers, arguments and values that logs and
dumps do not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from opscope.ascend.fault import Argument, Core, DumpFile, Fault
from opscope.ascend.kernels import Kernel, is_kernel, kernel_names, kernel_of, stripped
from opscope.ascend.opened import with_registers
from opscope.ascend.registers import ASCEND950
from opscope.errors import FormatError
from opscope.formats.bounded_json import parse_json
from opscope.formats.cann.corefile import CoreFile, Registers, content

_NAME = re.compile(
    r"(?P<kernel>.+)\.(?P<stream>\d{1,9})\.(?P<task>\d{1,9})\.(?P<time>\d{1,20})\.core"
)
_MAX_WORDS = 1 << 16
_MAX_JSON = 1 << 24
_INPUT, _OUTPUT, _WORKSPACE, _TILING, _GENERAL, _SHAPE, _ARGUMENTS = 2, 3, 4, 7, 1, 12, 101
_IO = {
    _GENERAL: "unknown",
    _INPUT: "input",
    _OUTPUT: "output",
    _SHAPE: "output",
    _WORKSPACE: "workspace",
    _TILING: "tiling",
}
# Address of a register -> the name the newest dump gives it, on 910B and A3.
_CLASSIC = {
    0x700: "AIC_ERR_0",
    0x704: "AIC_ERR_1",
    0x760: "AIC_ERR_2",
    0x764: "AIC_ERR_3",
    0x780: "AIC_ERR_4",
    0x790: "AIC_ERR_5",
    0x710: "BIU_ERR_0",
    0x714: "BIU_ERR_1",
    0x718: "CCU_ERR_0",
    0x71C: "CCU_ERR_1",
    0x720: "CUBE_ERR_0",
    0x728: "IFU_ERR_0",
    0x72C: "IFU_ERR_1",
    0x730: "MTE_ERR_0",
    0x734: "MTE_ERR_1",
    0x738: "VEC_ERR_0",
    0x73C: "VEC_ERR_1",
    0x78C: "FIXP_ERR_0",
    0x7C8: "FIXP_ERR_1",
}
# Address of an error register of Ascend 950 -> number of its first bit; unit -> addresses of its
# info registers.
_BITS950 = {
    0x8700: 0,
    0x8704: 32,
    0x6700: 64,
    0xA700: 128,
    0xA704: 160,
    0x4700: 192,
    0x5700: 256,
    0x7700: 320,
    0x7708: 352,
}
_INFO950 = {
    "sc": (0x4730, 0x4734),
    "su": (0x5730, 0x5734, 0x5738, 0x573C),
    "mte": (0x6718, 0x671C, 0x6720, 0x6724, 0x6728, 0x673C),
    "vec": (0x7730, 0x7734, 0x7738, 0x773C, 0x7740, 0x7744),
    "cube": (0x8730, 0x8734),
    "l1": (0xA718, 0xA71C),
}


def core_of(fault: Fault, cores: Sequence[CoreFile]) -> CoreFile | None:
    """The .core file of an error: of its task, with its kernel where both are known."""
    wanted = set(kernel_names(fault))
    for core in cores:
        named = _NAME.fullmatch(Path(core.path).name)
        if named is None:
            continue
        task = (int(named["stream"]), int(named["task"])) == (fault.stream, fault.task)
        kernel = not wanted or wanted & {
            *stripped(core.kernel, fault.tiling_key),
            *stripped(named["kernel"], fault.tiling_key),
        }
        if task and kernel:
            return core
    return None


def fault_of(file: CoreFile) -> Fault:
    """An error of which only the .core file is there."""
    named = _NAME.fullmatch(Path(file.path).name)
    task_facts = (
        {"stream": int(named["stream"]), "task": int(named["task"]), "kernel": named["kernel"]}
        if named
        else {}
    )
    return completed(
        Fault(files=(file.path,), device=file.device, function=file.kernel or None, **task_facts),  # type: ignore[arg-type]
        file,
    )


def completed(fault: Fault, file: CoreFile) -> Fault:
    """The error with what only the .core file knows: what the logs say stays."""
    changes: dict[str, object] = {"dump_files": (*fault.dump_files, DumpFile("core", file.path))}
    if not any(core.bits or core.registers for core in fault.cores):
        changes["cores"] = tuple(
            core for each in file.registers if (core := _core(each, file, fault)).bits
        )
    if not fault.arguments:
        changes["arguments"] = tuple(_arguments(file))
    if not fault.words_after:
        changes["words_after"] = _words(file)
    if not fault.tiling:
        changes["tiling"] = next(
            (
                _content(file, number)
                for number, block in enumerate(file.blocks)
                if block.type == _TILING
            ),
            b"",
        )
    if not fault.generation:
        changes["generation"] = "Ascend 950" if file.value_bytes == 32 else "STARS (910B, A3, 310P)"
    return msgspec.structs.replace(
        fault, **{name: value for name, value in changes.items() if value}
    )


def _core(each: Registers, file: CoreFile, fault: Fault) -> Core:
    kind = "aivec error" if each.core.startswith("AIV") else "aicore error"
    number = int(each.core.split()[1])
    plain = Core(core=number, kind=kind, device=file.device, time=fault.time)
    if file.value_bytes == 16:
        named = {
            _CLASSIC[address]: value
            for address, value in each.values.items()
            if address in _CLASSIC
        }
        return with_registers(plain, named)
    bits = sorted(
        base + bit
        for address, base in _BITS950.items()
        for bit in range(32)
        if each.values.get(address, 0) >> bit & 1
    )
    known = {unit: places for unit, places in _INFO950.items() if places[0] in each.values}
    info = {
        f"{unit} error info": tuple(each.values.get(at, 0) for at in places)
        for unit, places in known.items()
    }
    return msgspec.structs.replace(
        plain, bits=tuple(bits), numbering=ASCEND950, code=", ".join(map(str, bits)), registers=info
    )


def _arguments(file: CoreFile) -> Iterator[Argument]:
    counted: dict[str, int] = {}
    for block in file.blocks:
        io = _IO.get(block.type)
        if io is None:
            continue
        index = counted[io] = counted.get(io, -1) + 1
        failed = None if block.copied else "the core file says that copying it failed"
        shape = block.shape or None
        yield Argument(
            io=io,
            index=index,
            shape=shape,
            address=block.address,
            size=block.size,
            unreadable=failed,
        )


def _content(file: CoreFile, number: int) -> bytes:
    block = file.blocks[number]
    return (
        content(Path(file.path), (block.offset, min(block.size, block.stored)))
        if block.copied
        else b""
    )


def _words(file: CoreFile) -> tuple[int, ...]:
    places = (
        number
        for number, block in enumerate(file.blocks)
        if block.type == _ARGUMENTS and block.size <= 8 * _MAX_WORDS
    )
    data = next((_content(file, number) for number in places), b"")
    return tuple(int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 8))


def kernel_in(file: CoreFile) -> Kernel | None:
    """The kernel's description that the .core file carries."""
    if file.description is None or file.description[1] > _MAX_JSON:
        return None
    try:
        document = parse_json(content(Path(file.path), file.description).rstrip(b"\0"), file.path)
    except FormatError:
        return None
    return kernel_of(document, file.path) if is_kernel(document) else None


def values_in(file: CoreFile, io: str, index: int) -> bytes | None:
    """Bytes of a tensor in the .core file; None where it does not hold them."""
    places = [number for number, block in enumerate(file.blocks) if _IO.get(block.type) == io]
    return _content(file, places[index]) or None if index < len(places) else None
