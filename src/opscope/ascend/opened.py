# SPDX-License-Identifier: Apache-2.0
"""An error while its lines are still coming: fields fill up event by event, and at the end it
becomes a Fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from itertools import takewhile
from typing import Any

import msgspec

from opscope.ascend import registers
from opscope.ascend.events import (
    AnalysedCore,
    Described,
    DescribedNode,
    Event,
    Extended,
    Failed,
    FailedTask,
    FaultAddress,
    Launched,
    Loaded,
    LoadedData,
    LoadedType,
    Loading,
    Module,
    Program,
    ScreenCore,
    SlogCore,
    SlogRegister,
    Tracked,
    Unreadable,
    Words,
)
from opscope.ascend.fault import Allocation, Argument, Core, DumpFile, Fault, Noted, Returned
from opscope.ascend.lines import bits950, numbers
from opscope.ascend.records import Record
from opscope.ascend.registers import ASCEND950, CLASSIC

_BYTE = re.compile(r"0[xX][0-9a-fA-F]{1,2}")
_LIMIT = 4096  # of anything that one error may list
_IO = {
    1: "input",
    2: "input",
    3: "output",
    4: "workspace",
    5: "log",
    6: "mc2 context",
    7: "tiling",
    8: "L1",
    9: "L2",
    10: "overflow address",
    11: "FFTS address",
    12: "output",
}
# Names in the slog of 2020 and in the newest dump's analysis -> names in a core line.
_SLOG = {
    "PC_START": "pc start",
    "CURRENT_PC": "current",
    "PARA_BASE": "para base",
    "AIC_ERROR_MASK": "aic error mask",
    "VEC_ERR_INFO": "vec error info",
    "MTE_ERR_INFO": "mte error info",
    "IFU_ERR_INFO": "ifu error info",
    "CCU_ERR_INFO": "ccu error info",
    "CUBE_ERR_INFO": "cube error info",
    "BIU_ERR_INFO": "biu error info",
}
# Attributes of an error -> names in the line of a failure.
_PLACES = {
    "own_device": "device_id",
    "stream": "stream_id",
    "task": "task_id",
    "context": "context_id",
    "thread": "thread_id",
}
# What an error without a kernel's name hands on to the one that it belongs to.
_OWN = (
    *_PLACES,
    "node_name",
    "node_type",
    "module",
    "tiling_key",
    "args_size",
    "block_dim",
)
_HALVES = ("VEC_ERR", "MTE_ERR", "IFU_ERR", "CCU_ERR", "CUBE_ERR", "BIU_ERR")


@dataclass
class Load:
    """A tensor that the brief dump is loading."""

    what: str
    index: int
    kind: int | None = None
    part: int = 0


@dataclass
class Open:
    """One error under construction.

    assumed: stream and task were reported before the kernel's name, and need not be its own; cut
    are keys of the description, copies files that tell of the error once more.
    """

    pid: int | None
    process: str | None
    time: str | None
    file: str
    offset: int
    files: list[str] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    own_device: int | None = None
    stream: int | None = None
    task: int | None = None
    context: int | None = None
    thread: int | None = None
    assumed: bool = False
    node_name: str | None = None
    node_type: str | None = None
    module: str | None = None
    tiling_key: int | None = None
    args_size: int | None = None
    block_dim: int | None = None
    cut: set[str] = field(default_factory=set)
    copies: set[str] = field(default_factory=set)
    failure: dict[str, str] = field(default_factory=dict)
    described: dict[str, str] = field(default_factory=dict)
    arguments: dict[tuple[str, int, int], Argument] = field(default_factory=dict)
    words: dict[str, dict[int, tuple[int, ...]]] = field(
        default_factory=lambda: {"before": {}, "after": {}}
    )
    returned: dict[Returned, None] = field(default_factory=dict)
    dump_files: dict[DumpFile, None] = field(default_factory=dict)
    notes: dict[Noted, None] = field(default_factory=dict)
    addresses: dict[int, None] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
    loading: Load | None = None
    warnings: dict[str, None] = field(default_factory=dict)
    described_by_engine: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.failure)

    @property
    def serial(self) -> int | None:
        return next((core.serial for core in self.cores if core.serial is not None), None)

    @property
    def device(self) -> int | None:
        if self.own_device is not None:
            return self.own_device
        return next((core.device for core in self.cores if core.device is not None), None)

    @property
    def chip(self) -> tuple[int | None, int | None]:
        """Chip (or device) and die as the first core's line has them."""
        return next(((core.device, core.die) for core in self.cores), (None, None))

    @property
    def on_chip(self) -> bool:
        """Whether only the chip is known so far, not the device's own number."""
        return self.own_device is None and self.chip[1] is not None

    @property
    def likely_devices(self) -> tuple[int, ...]:
        """Numbers the device may have: the one said, or the chip's, or that of the die where a chip
        has two.
        """
        chip, die = self.chip
        if not self.on_chip or chip is None or die is None:
            return () if self.device is None else (self.device,)
        return (chip,) if die == 0 and chip == 0 else (2 * chip + die, chip)

    def take_cores(self, other: Open) -> None:
        """Everything an error without a kernel's name holds, added to this one."""
        self.cores += other.cores
        self.files += [file for file in other.files if file not in self.files]
        for mine, its in (
            (self.returned, other.returned),
            (self.notes, other.notes),
            (self.warnings, other.warnings),
        ):
            mine.update(its)  # type: ignore[arg-type]
        self.fill(**{name: getattr(other, name) for name in _OWN})
        self.assumed |= other.assumed
        self.cut |= other.cut
        self.copies |= other.copies
        for position, argument in other.arguments.items():
            self.arguments.setdefault(position, argument)

    def is_task(self, stream: int | None, task: int | None) -> bool:
        """Whether this is the error of a task, as far as both are known."""
        return (self.stream, self.task) == (stream, task)

    def fill(self, **known: Any) -> None:
        """Set what is not known yet, by the names of the attributes."""
        for name, value in known.items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        self.warnings[text] = None

    def take(self, event: Event, record: Record) -> None:
        """Fold one event in; kinds that nothing is kept of are left out."""
        if record.file not in self.files:
            self.files.append(record.file)
        _fold(event, self, record)


def same_core(core: Core, other: Core) -> bool:
    """Whether two lines are about one core: a core and a vector core may have the same number."""
    return core.core == other.core and ("aiv" in core.kind) == ("aiv" in other.kind)


@singledispatch
def _fold(_event: object, _fault: Open, _record: Record) -> None:
    """Add what an event says to an error."""


@_fold.register
def _core(core: Core, fault: Open, _: Record) -> None:
    known = any(same_core(one, core) and one.registers == core.registers for one in fault.cores)
    if known or len(fault.cores) >= _LIMIT:
        return
    fault.cores.append(core)
    if core.cut:
        fault.warn(
            "a line with registers was cut by the logger; what was behind the cut is missing"
        )


@_fold.register
def _extend(event: Extended, fault: Open, _: Record) -> None:
    core_number = _extended_core(fault, event)
    if core_number is None:
        return
    core = fault.cores[core_number]
    codes = core.codes
    if core.numbering == CLASSIC:
        codes = event.codes or codes
        second = event.values.get("aicore error2")
        if second and isinstance(second, int):
            codes = (codes[0] if codes else 0, second, *codes[2:])
    fault.cores[core_number] = msgspec.structs.replace(
        core,
        extend={**core.extend, **event.values},
        message=core.message or event.message,
        codes=codes,
        bits=registers.bits_of(codes)
        if core.numbering == CLASSIC
        else core.bits or bits950(event.codes or (), event.message),
    )


def _extended_core(fault: Open, event: Extended) -> int | None:
    """The core an extending record is about: the one it names, else the last one without one."""
    places = range(len(fault.cores) - 1, -1, -1)
    if event.core is not None:
        return next((number for number in places if fault.cores[number].core == event.core), None)
    return next((number for number in places if not fault.cores[number].extend), None)


@_fold.register
def _failed(event: Failed, fault: Open, record: Record) -> None:
    # the task that was reported before the cores need not be the kernel's
    if fault.assumed:
        fault.assumed, fault.stream, fault.task = False, None, None
    for key, value in event.said.items():
        fault.failure.setdefault(key, value)
    known = {name: event.said.get(key, "") for name, key in _PLACES.items()}
    fault.fill(
        **{name: int(text) for name, text in known.items() if text.isdecimal() and len(text) < 19}
    )
    fault.time = fault.time or record.time


@_fold.register
def _node(event: DescribedNode, fault: Open, _: Record) -> None:
    fault.described_by_engine = True
    name, kind = event.node_name, event.node_type
    if kind.startswith("aclnn") and not name.startswith("aclnn"):
        # A call of aclnn is named where the type belongs, and its operator where the name does.
        name, kind = kind, name
    fault.fill(
        node_name=name,
        node_type=kind,
        stream=event.stream,
        task=event.task,
        context=event.context,
        thread=event.thread,
    )


@_fold.register
def _tracked(event: Tracked, fault: Open, _: Record) -> None:
    if fault.is_task(event.stream, event.task):
        fault.fill(node_name=event.node_name)


@_fold.register
def _tensor(argument: Argument, fault: Open, _: Record) -> None:
    fault.described_by_engine = True
    _add(fault, argument)


def _add(fault: Open, argument: Argument) -> None:
    if len(fault.arguments) < _LIMIT:
        fault.arguments.setdefault((argument.io, argument.index, argument.part), argument)


@_fold.register
def _described(event: Described, fault: Open, _: Record) -> None:
    fault.described.setdefault(event.key, event.value)
    if event.cut:
        fault.warn(f"{event.key} was cut by the logger")
        fault.cut.add(event.key)


@_fold.register
def _words_said(event: Words, fault: Open, record: Record) -> None:
    blocks = fault.words[event.when]
    known = blocks.get(event.start)
    if known is not None and known != event.words and record.file != fault.file:
        fault.copies.add(record.file)
        fault.warn(
            f"{record.file} tells of the same error with other argument words; those of "
            f"{fault.file} are used"
        )
    if len(blocks) < _LIMIT:
        blocks.setdefault(event.start, event.words)
    if event.cut:
        fault.warn(f"the argument words {event.when} execution were cut by the logger")


@_fold.register
def _load(event: Loading, fault: Open, record: Record) -> None:
    # another copy of the log counts the arguments differently
    other = record.file in fault.copies
    fault.loading = None if other else Load(event.what, event.index, event.type)


@_fold.register
def _loaded(_: Loaded, fault: Open, _record: Record) -> None:
    fault.loading = None


@_fold.register
def _load_type(event: LoadedType, fault: Open, _: Record) -> None:
    if fault.loading is not None and event.type is not None:
        fault.loading.kind = event.type


@_fold.register
def _load_data(event: LoadedData, fault: Open, _: Record) -> None:
    loading = fault.loading
    if loading is None:
        return
    io = _IO.get(loading.kind or 0, "unknown")
    for word, said in (("workspace", "workspace"), ("tiling", "tiling"), ("mc2", "mc2 context")):
        io = said if word in loading.what else io
    count = sum(1 for known in fault.arguments.values() if known.io == io and known.part == 0)
    index = next(
        (
            known.index
            for known in fault.arguments.values()
            if known.position == loading.index and known.io == io
        ),
        count,
    )
    if io == "unknown":
        index = loading.index
    argument = Argument(
        io=io,
        index=index,
        position=loading.index,
        part=loading.part,
        address=event.address,
        size=event.size,
    )
    _add(fault, argument)
    loading.part += 1


@_fold.register
def _unreadable(event: Unreadable, fault: Open, _: Record) -> None:
    """The log says that memory could not be copied: of the tensor with that address, else of the
    last one.
    """
    text = event.text[:400]
    known = [
        key
        for key, one in fault.arguments.items()
        if event.address and one.address == event.address
    ]
    key = known[0] if known else next(reversed(fault.arguments), None)
    if key is not None:
        fault.arguments[key] = msgspec.structs.replace(fault.arguments[key], unreadable=text)
    fault.notes[Noted("unreadable", text)] = None


@_fold.register
def _launched(event: Launched, fault: Open, _: Record) -> None:
    fault.fill(tiling_key=event.tiling_key, args_size=event.args_size, block_dim=event.block_dim)


@_fold.register
def _task(event: FailedTask, fault: Open, _: Record) -> None:
    fault.fill(own_device=event.device, stream=event.stream, task=event.task)
    if not fault.failed and event.stream is not None:
        fault.assumed = True
    if event.error:
        fault.notes[Noted("task", event.error)] = None


@_fold.register
def _returned(returned: Returned, fault: Open, _: Record) -> None:
    if len(fault.returned) < _LIMIT:
        fault.returned[returned] = None


@_fold.register
def _slog_register(event: SlogRegister, fault: Open, _: Record) -> None:
    if fault.cores:
        fault.cores[-1] = with_registers(fault.cores[-1], {event.name: event.value})


def with_registers(core: Core, values: Mapping[str, int]) -> Core:
    """A core with registers added under the names of the slog of 2020 (AIC_ERROR, MTE_ERR_INFO, …)
    or of the newest dump.
    """
    known = dict(core.registers)
    codes = list(core.codes)
    for name, value in values.items():
        if name in _SLOG:
            known.setdefault(_SLOG[name], value)
        elif name in ("AIC_ERROR", "AIC_ERROR0", "AIC_ERROR_0"):
            codes = [value, *codes[1:]]
            known.setdefault(name, value)
        elif name.startswith("AIC_ERR_") and name[8:] in "012345" and len(name) == 9:
            word = int(name[8:])
            codes += [0] * (3 - len(codes))
            codes[word // 2] |= (value & 0xFFFFFFFF) << 32 * (word % 2)
        elif name[:-2] in _HALVES and name[-1] in "01":
            register = f"{name[:-6].lower()} error info"
            known[register] = known.get(register, 0) | (value & 0xFFFFFFFF) << 32 * int(name[-1])
        elif name.startswith("FIXP_ERR_") and name[-1] in "01":
            known.setdefault(f"fixp_error{name[-1]} info", value)
        else:
            known.setdefault(name, value)
    return msgspec.structs.replace(
        core,
        registers=known,
        codes=tuple(codes),
        bits=registers.bits_of(codes),
        code=core.code or (hex(codes[0]) if codes else ""),
    )


@_fold.register
def _slog_core(event: SlogCore, fault: Open, record: Record) -> None:
    if len(fault.cores) < _LIMIT:
        core = Core(core=event.core, kind="aicore", device=fault.own_device, time=record.time)
        fault.cores.append(with_registers(core, event.registers))


@_fold.register
def _screen_core(event: ScreenCore, fault: Open, record: Record) -> None:
    codes = numbers(event.code)
    if (
        any(core.core == event.core for core in fault.cores)
        or len(fault.cores) >= _LIMIT
        or not any(codes)
    ):
        return
    fault.cores.append(
        Core(
            core=event.core,
            kind="aicore",
            device=fault.own_device,
            code=event.code,
            codes=codes,
            bits=registers.bits_of(codes),
            time=record.time,
        )
    )


@_fold.register
def _analysed(event: AnalysedCore, fault: Open, record: Record) -> None:
    core_number = next(
        (core_number for core_number, core in enumerate(fault.cores) if core.core == event.core),
        None,
    )
    if core_number is None and not fault.cores:
        core = Core(core=event.core, kind=event.kind, device=fault.device, time=record.time)
        fault.cores.append(with_registers(core, event.registers))
    elif core_number is not None and fault.cores[core_number].numbering == CLASSIC:
        fault.cores[core_number] = with_registers(fault.cores[core_number], event.registers)


@_fold.register
def _program(event: Program, fault: Open, _: Record) -> None:
    for key, value in event.said.items():
        fault.program.setdefault(key, value)


@_fold.register
def _dump_file(event: DumpFile, fault: Open, _: Record) -> None:
    fault.dump_files[DumpFile(event.what, event.path[:4096])] = None


@_fold.register
def _noted(event: Noted, fault: Open, _: Record) -> None:
    fault.notes[Noted(event.topic, event.text[:1000])] = None


@_fold.register
def _fault_address(event: FaultAddress, fault: Open, _: Record) -> None:
    fault.addresses[event.address] = None


@_fold.register
def _module(event: Module, fault: Open, _: Record) -> None:
    fault.fill(module=event.name)


def close(
    fault: Open,
    *,
    pid: int | None,
    allocations: tuple[Allocation, ...] | None,
    soc: str | None,
    cleaned: tuple[str, ...],
    informed: bool,
) -> Fault:
    """The error as it stands now; pid is the process's own number, which fault.pid need not be."""
    after, before = (_words(fault.words[when]) for when in ("after", "before"))
    tiling, cut = _tiling(fault)
    kernel = fault.failure.get("fault kernel_name") or fault.failure.get("kernel_name")
    return Fault(
        process=fault.process,
        pid=pid,
        time=fault.time,
        files=tuple(fault.files),
        offset=fault.offset,
        generation=_generation(fault),
        soc=soc,
        cores=tuple(fault.cores),
        device=fault.device,
        stream=fault.stream,
        task=fault.task,
        context=fault.context,
        thread=fault.thread,
        kernel=kernel,
        function=fault.failure.get("func_name"),
        failure=dict(fault.failure),
        node_name=fault.node_name,
        node_type=fault.node_type,
        described=dict(fault.described)
        | ({} if fault.module is None else {"module": fault.module}),
        level=_level(fault),
        arguments=tuple(fault.arguments.values()),
        words_before=before,
        words_after=after,
        tiling=tiling,
        tiling_cut=cut,
        tiling_key=fault.described.get("tiling_key")
        or (None if fault.tiling_key is None else str(fault.tiling_key)),
        block_dim=_block_dim(fault),
        args_size=fault.args_size,
        returned=tuple(fault.returned),
        dump_files=tuple(fault.dump_files),
        notes=tuple(fault.notes),
        fault_addresses=tuple(fault.addresses),
        program=dict(fault.program),
        allocations=allocations,
        atomic_cleaned=cleaned,
        informed=informed,
        warnings=tuple(fault.warnings),
    )


def _level(fault: Open) -> str | None:
    if "dev_func" in fault.described:
        return "L1"
    return (
        "L0"
        if any(one.position is not None for one in fault.arguments.values())
        else "L1"
        if fault.described_by_engine
        else None
    )


def _block_dim(fault: Open) -> int | None:
    said = fault.described.get("block_dim", "")
    return int(said) if said.isdecimal() and len(said) < 10 else fault.block_dim


def _words(blocks: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """The blocks of argument words from word 0 on, up to the first gap."""
    words: list[int] = []
    for start in sorted(blocks):
        if start > len(words):
            break
        words[start:] = blocks[start]
    return tuple(words)


def _tiling(fault: Open) -> tuple[bytes, bool]:
    text = fault.described.get("tiling_data", "")
    cut = "tiling_data" in fault.cut
    values = [int(byte, 16) for byte in _bytes_of(text, whole=not cut)]
    return bytes(values), cut


def _bytes_of(text: str, *, whole: bool) -> list[str]:
    parts = text.replace(",", " ").split()
    if not whole and parts and not text.endswith(" "):
        parts = parts[:-1]  # the last byte may have lost a digit
    return list(takewhile(_BYTE.fullmatch, parts))


def _generation(fault: Open) -> str:
    """Which chips write such lines."""
    for core in fault.cores:
        if core.numbering == ASCEND950:
            return "Ascend 950"
        if "fsmId" in core.extend or core.die is not None:
            return "STARS (910B, A3, 310P)"
        if "axi clamp ctrl" in core.extend or (core.serial is not None and core.die is None):
            return "910A"
        if "AI_CORE_INT" in core.registers:
            return "910A (device slog of 2020)"
    return ""
