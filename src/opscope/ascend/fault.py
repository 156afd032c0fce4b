# SPDX-License-Identifier: Apache-2.0
"""What the logs say about one AI Core error: cores with their registers, the task, the kernel's
arguments, what was dumped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from opscope.ascend.registers import CLASSIC


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """One core that reported an error.

    codes are the classic error words, bits the numbers of their bits (of Ascend 950: the numbers
    the log prints). registers holds what the core line says ("pc start", "mte error info", …),
    extend what the record after it says; a value is an integer or, where the log prints several
    words, a tuple.
    """

    core: int | None = None
    kind: str = ""
    device: int | None = None
    die: int | None = None
    serial: int | None = None
    code: str = ""
    codes: tuple[int, ...] = ()
    bits: tuple[int, ...] = ()
    numbering: str = CLASSIC
    registers: dict[str, Any] = {}
    extend: dict[str, Any] = {}
    message: str | None = None
    time: str | None = None
    cut: bool = False

    def register(self, name: str) -> int | None:
        """A register's first word, None when the log does not have it."""
        value = self.registers.get(name)
        return value[0] if isinstance(value, tuple) else value


def slot_name(io: str, index: int, part: int) -> str:
    """`input 0`; the parts of a list of tensors are `input 0.1`."""
    return f"{io} {index}" if part == 0 else f"{io} {index}.{part}"


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the kernel as the log describes it: io is input, output, workspace, tiling or
    unknown.

    position is its word in the argument block where the log says so; unreadable is the log's line
    that the memory could not be copied.
    """

    io: str
    index: int
    position: int | None = None
    part: int = 0
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    format: str | None = None
    address: int | None = None
    size: int | None = None
    unreadable: str | None = None

    @property
    def name(self) -> str:
        """`input 0`, `input 0.1`."""
        return slot_name(self.io, self.index, self.part)


class Returned(msgspec.Struct, frozen=True):
    """A code some layer returned: 0x26, 507015; what it is called there, and the runtime's inner
    code.
    """

    code: str
    text: str | None = None
    inner: str | None = None


class DumpFile(msgspec.Struct, frozen=True):
    """A file that was written."""

    what: str
    path: str


class Noted(msgspec.Struct, frozen=True):
    """A line that is worth its own text."""

    topic: str
    text: str


class Allocation(msgspec.Struct, frozen=True):
    """One allocation of device memory, in the order of the log; freed_at is the time of its free
    before the error.
    """

    address: int
    size: int
    time: str | None = None
    freed_at: str | None = None

    @property
    def end(self) -> int:
        return self.address + self.size


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One error: everything the logs say about it, merged over cores, processes' files and repeated
    lines.

    level is L0 (brief dump: no node known), L1 (described by the graph engine) or None.
    words_before and words_after are the kernel's argument words; described holds the remaining keys
    of the description (dev_func, tiling_key, all_attrs, …). allocations is None when the logs say
    nothing about memory.
    """

    process: str | None = None
    pid: int | None = None
    time: str | None = None
    files: tuple[str, ...] = ()
    offset: int = 0
    generation: str = ""
    soc: str | None = None
    cores: tuple[Core, ...] = ()
    device: int | None = None
    stream: int | None = None
    task: int | None = None
    context: int | None = None
    thread: int | None = None
    kernel: str | None = None
    function: str | None = None
    failure: dict[str, str] = {}
    node_name: str | None = None
    node_type: str | None = None
    described: dict[str, str] = {}
    level: str | None = None
    arguments: tuple[Argument, ...] = ()
    words_before: tuple[int, ...] = ()
    words_after: tuple[int, ...] = ()
    tiling: bytes = b""
    tiling_cut: bool = False
    tiling_key: str | None = None
    block_dim: int | None = None
    args_size: int | None = None
    returned: tuple[Returned, ...] = ()
    dump_files: tuple[DumpFile, ...] = ()
    notes: tuple[Noted, ...] = ()
    fault_addresses: tuple[int, ...] = ()
    program: dict[str, Any] = {}
    allocations: tuple[Allocation, ...] | None = None
    atomic_cleaned: tuple[str, ...] = ()
    informed: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def dev_func(self) -> str | None:
        """Name of the function on the device, as far as the logs have it."""
        return self.described.get("dev_func") or self.function or self.kernel
