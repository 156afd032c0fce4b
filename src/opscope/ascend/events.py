# SPDX-License-Identifier: Apache-2.0
"""What one line of a log says: a frozen record for each kind of line.

Numbers are integers, None where the line does not have them. A line that says a whole Core,
Argument, DumpFile, Noted or Returned is that record.
"""

from __future__ import annotations

import msgspec

from opscope.ascend.fault import Argument, Core, DumpFile, Noted, Returned


class Allocated(msgspec.Struct, frozen=True):
    """Device memory was given out."""

    address: int
    size: int


class Freed(msgspec.Struct, frozen=True):
    """Device memory was given back."""

    address: int


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """What the record after a core line adds; core is None where it does not name one."""

    core: int | None
    codes: tuple[int, ...] | None
    message: str | None
    values: dict[str, int | tuple[int, ...]]


class Failed(msgspec.Struct, frozen=True):
    """A kernel's execution failed: what the runtime says of it by its own names."""

    said: dict[str, str]


class Coded(msgspec.Struct, frozen=True):
    """A code that is explained by itself, and the line that has it."""

    code: str
    text: str


class Asserted(msgspec.Struct, frozen=True):
    """An assertion of a kernel, `FILE:LINE: CONDITION`."""

    text: str


class Tracked(msgspec.Struct, frozen=True, kw_only=True):
    """The graph engine's own word on whose task failed."""

    node_name: str
    stream: int
    task: int


class Screen(msgspec.Struct, frozen=True):
    """The first line of an error as the screen shows it."""

    device: int


class ScreenCore(msgspec.Struct, frozen=True):
    """A core on the screen, and its error code as it is written."""

    core: int
    code: str


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A block of argument words; when is before or after the execution, start its first word."""

    when: str
    start: int
    words: tuple[int, ...]
    cut: bool


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """How a kernel was launched."""

    tiling_key: int
    args_size: int | None
    block_dim: int | None


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the graph engine's description."""

    key: str
    value: str
    cut: bool


class DescribedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The head of the graph engine's description."""

    node_name: str
    node_type: str
    stream: int
    task: int
    context: int | None
    thread: int | None


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """The brief dump begins to load a tensor; type is its number of a kind of tensor."""

    what: str
    index: int
    type: int | None


class Loaded(msgspec.Struct, frozen=True):
    """The brief dump has loaded a tensor."""


class LoadedType(msgspec.Struct, frozen=True):
    """The kind of the tensor that is being loaded."""

    type: int | None


class LoadedData(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tensor that is being loaded lies."""

    address: int
    size: int


class Unreadable(msgspec.Struct, frozen=True):
    """Memory could not be copied."""

    text: str
    address: int | None


class FailedTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task that failed, which need not be the kernel's."""

    device: int | None
    stream: int | None
    task: int | None
    error: str | None


class SlogError(msgspec.Struct, frozen=True, kw_only=True):
    """The head of an error in the slog of 2020."""

    device: int | None
    stream: int | None
    task: int | None
    code: int | None


class SlogCore(msgspec.Struct, frozen=True):
    """A core in the slog of 2020."""

    core: int | None
    registers: dict[str, int]


class SlogRegister(msgspec.Struct, frozen=True):
    """A register in the slog of 2020, on a line of its own."""

    name: str
    value: int


class AnalysedCore(msgspec.Struct, frozen=True, kw_only=True):
    """Registers of a core in the newest dump's analysis."""

    core: int | None
    kind: str
    registers: dict[str, int]


class Program(msgspec.Struct, frozen=True):
    """Counter, symbol or source line in the newest dump's analysis."""

    said: dict[str, int | str]


class Cleaned(msgspec.Struct, frozen=True):
    """Memory of a node was zeroed before it."""

    node: str


class FaultAddress(msgspec.Struct, frozen=True):
    """The address of a page fault."""

    address: int


class Chip(msgspec.Struct, frozen=True):
    """The name of the chip."""

    name: str


class Passed(msgspec.Struct, frozen=True):
    """A line of an error of which nothing is kept."""


class Module(msgspec.Struct, frozen=True):
    """The module that a kernel of a single operator was built in."""

    name: str


Event = (
    Allocated
    | AnalysedCore
    | Argument
    | Asserted
    | Chip
    | Cleaned
    | Coded
    | Core
    | Described
    | DescribedNode
    | DumpFile
    | Extended
    | Failed
    | FailedTask
    | FaultAddress
    | Freed
    | Launched
    | Loaded
    | LoadedData
    | LoadedType
    | Loading
    | Module
    | Noted
    | Passed
    | Program
    | Returned
    | Screen
    | ScreenCore
    | SlogCore
    | SlogError
    | SlogRegister
    | Tracked
    | Unreadable
    | Words
)
