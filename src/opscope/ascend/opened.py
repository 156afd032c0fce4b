# SPDX-License-Identifier: Apache-2.0
"""An error while its lines are still coming: fields fill up event by event, and at the end it
becomes a Fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec

from opscope.ascend import registers
from opscope.ascend.fault import Allocation, Argument, Core, Fault, Returned
from opscope.ascend.lines import Event, numbers
from opscope.ascend.records import Record
from opscope.ascend.registers import ASCEND950, CLASSIC

_BYTE = re.compile(r"0[xX][0-9a-fA-F]{1,2}")
_LIMIT = 4096  # of anything that one error may list
_IO = {1: "input", 2: "input", 3: "output", 4: "workspace", 5: "log", 6: "mc2 context",
    7: "tiling", 8: "L1", 9: "L2",
       10: "overflow address", 11: "FFTS address", 12: "output"}  # fmt: skip
# Names in the slog of 2020 and in the newest dump's analysis -> names in a core line.
_SLOG = {
    "PC_START": "pc start", "CURRENT_PC": "current", "PARA_BASE": "para base",
    "AIC_ERROR_MASK": "aic error mask",
    "VEC_ERR_INFO": "vec error info",
    "MTE_ERR_INFO": "mte error info", "IFU_ERR_INFO": "ifu error info",
    "CCU_ERR_INFO": "ccu error info",
    "CUBE_ERR_INFO": "cube error info", "BIU_ERR_INFO": "biu error info",
}  # fmt: skip
_HALVES = ("VEC_ERR", "MTE_ERR", "IFU_ERR", "CCU_ERR", "CUBE_ERR", "BIU_ERR")


@dataclass
class Loading:
    """A tensor that the brief dump is loading."""

    what: str
    index: int
    kind: int | None = None
    part: int = 0


@dataclass
class Open:
    """One error under construction."""

    pid: int | None
    process: str | None
    time: str | None
    file: str
    offset: int
    files: list[str] = field(default_factory=list)
    cores: list[Core] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, str] = field(default_factory=dict)
    described: dict[str, str] = field(default_factory=dict)
    arguments: dict[tuple[str, int, int], Argument] = field(default_factory=dict)
    words: dict[str, dict[int, tuple[int, ...]]] = field(
        default_factory=lambda: {"before": {}, "after": {}}
    )
    returned: dict[Returned, None] = field(default_factory=dict)
    dump_files: dict[tuple[str, str], None] = field(default_factory=dict)
    notes: dict[tuple[str, str], None] = field(default_factory=dict)
    addresses: dict[int, None] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
    loading: Loading | None = None
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
        known = self.fields.get("device")
        return (
            known
            if known is not None
            else next((core.device for core in self.cores if core.device is not None), None)
        )

    @property
    def chip(self) -> tuple[int | None, int | None]:
        """Chip (or device) and die as the first core's line has them."""
        return next(((core.device, core.die) for core in self.cores), (None, None))

    @property
    def on_chip(self) -> bool:
        """Whether only the chip is known so far, not the device's own number."""
        return self.fields.get("device") is None and self.chip[1] is not None

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
        for key, value in other.fields.items():
            self.fields.setdefault(key, value)
        for place, argument in other.arguments.items():
            self.arguments.setdefault(place, argument)

    def is_task(self, stream: int | None, task: int | None) -> bool:
        """Whether this is the error of a task, as far as both are known."""
        own = self.fields.get("stream"), self.fields.get("task")
        return own == (stream, task)

    def take(self, event: Event, record: Record) -> None:
        """Fold one event in; kinds that nothing is kept of are left out."""
        if record.file not in self.files:
            self.files.append(record.file)
        reader = _READERS.get(event.kind)
        if reader is not None:
            reader(self, event.fields, record)


def same_core(core: Core, fields: Mapping[str, Any]) -> bool:
    """Whether a core line is about this core: a core and a vector core may have the same number."""
    return bool(core.core == fields["core"]) and ("aiv" in core.kind) == ("aiv" in fields["kind"])


def _core(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    if (
        any(
            same_core(core, fields) and core.registers == fields["registers"]
            for core in fault.cores
        )
        or len(fault.cores) >= _LIMIT
    ):
        return
    numbering = (
        ASCEND950 if {"sc error info", "su error info"} & fields["registers"].keys() else CLASSIC
    )
    fault.cores.append(make_core(fields, numbering=numbering, time=record.time))
    if fields["cut"]:
        fault.warnings[
            "a line with registers was cut by the logger; what was behind the cut is missing"
        ] = None


def make_core(fields: Mapping[str, Any], *, numbering: str, time: str | None) -> Core:
    """A core from the fields of its line; the code is read in its numbering."""
    found = numbers(fields["code"])
    codes, bits = (
        (found, registers.bits_of(found))
        if numbering == CLASSIC
        else ((), _bits950(found, fields["message"]))
    )
    return Core(
        core=fields["core"],
        kind=fields["kind"],
        device=fields["device"],
        die=fields["die"],
        serial=fields["serial"],
        code=fields["code"],
        codes=codes,
        bits=bits,
        numbering=numbering,
        registers=fields["registers"],
        message=fields["message"],
        time=time,
        cut=fields["cut"],
    )


def _bits950(numbers: tuple[int, ...], message: str | None) -> tuple[int, ...]:
    """Numbers of the set bits; a lone 0 is none, a time-out or trap, unless the runtime's words say
    that it is bit 0 of L0A.
    """
    return () if numbers == (0,) and "l0a" not in (message or "").lower() else numbers


def _extend(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    place = _extended_core(fault, fields)
    if place is None:
        return
    core = fault.cores[place]
    codes = core.codes
    if core.numbering == CLASSIC:
        codes = fields["codes"] or codes
        second = fields["values"].get("aicore error2")
        if second:
            codes = (codes[0] if codes else 0, second, *codes[2:])
    fault.cores[place] = msgspec.structs.replace(
        core,
        extend={**core.extend, **fields["values"]},
        message=core.message or fields["message"],
        codes=codes,
        bits=registers.bits_of(codes)
        if core.numbering == CLASSIC
        else core.bits or _bits950(fields["codes"] or (), fields["message"]),
    )


def _extended_core(fault: Open, fields: Mapping[str, Any]) -> int | None:
    """The core an extending record is about: the one it names, else the last one without one."""
    places = range(len(fault.cores) - 1, -1, -1)
    if fields["core"] is not None:
        return next((place for place in places if fault.cores[place].core == fields["core"]), None)
    return next((place for place in places if not fault.cores[place].extend), None)


def _failed(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    said = fields["fields"]
    # the task that was reported before the cores need not be the kernel's
    if fault.fields.pop("assumed", False):
        fault.fields |= {"stream": None, "task": None}
    for key, value in said.items():
        fault.failure.setdefault(key, value)
    places = (
        ("device", "device_id"),
        ("stream", "stream_id"),
        ("task", "task_id"),
        ("context", "context_id"),
        ("thread", "thread_id"),
    )
    for key, name in places:
        if (
            said.get(name, "").isdecimal()
            and len(said[name]) < 19
            and fault.fields.get(key) is None
        ):
            fault.fields[key] = int(said[name])
    fault.time = fault.time or record.time


def _node(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    fault.described_by_engine = True
    said = dict(fields)
    if said["node_type"].startswith("aclnn") and not said["node_name"].startswith("aclnn"):
        # A call of aclnn is named where the type belongs, and its operator where the name does.
        said["node_name"], said["node_type"] = said["node_type"], said["node_name"]
    for key in ("node_name", "node_type", "stream", "task"):
        if fault.fields.get(key) is None:
            fault.fields[key] = said[key]
    fault.fields.setdefault("context", fields["more"].get("context_id"))
    fault.fields.setdefault("thread", fields["more"].get("thread_id"))


def _tracked(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    if fault.is_task(fields["stream"], fields["task"]) and fault.fields.get("node_name") is None:
        fault.fields["node_name"] = fields["node_name"]


def _tensor(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    fault.described_by_engine = True
    _add(fault, Argument(**fields))


def _add(fault: Open, argument: Argument) -> None:
    if len(fault.arguments) < _LIMIT:
        fault.arguments.setdefault((argument.io, argument.index, argument.part), argument)


def _described(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    fault.described.setdefault(fields["key"], fields["value"])
    if fields["cut"]:
        fault.warnings[f"{fields['key']} was cut by the logger"] = None
        fault.fields.setdefault("cut", set()).add(fields["key"])


def _args(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    blocks = fault.words[fields["when"]]
    known = blocks.get(fields["start"])
    if known is not None and known != fields["words"] and record.file != fault.file:
        fault.fields.setdefault("copies", set()).add(record.file)
        fault.warnings[
            f"{record.file} tells of the same error with other argument words; those of "
            f"{fault.file} are used"
        ] = None
    if len(blocks) < _LIMIT:
        blocks.setdefault(fields["start"], fields["words"])
    if fields["cut"]:
        fault.warnings[f"the argument words {fields['when']} execution were cut by the logger"] = (
            None
        )


def _load(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    if record.file in fault.fields.get("copies", ()):
        fault.loading = None  # another copy of the log, whose arguments are counted differently
        return
    fault.loading = (
        Loading(fields["what"], fields["index"], fields["type"]) if fields["begin"] else None
    )


def _load_type(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    if fault.loading is not None and fields["type"] is not None:
        fault.loading.kind = fields["type"]


def _load_data(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    loading = fault.loading
    if loading is None:
        return
    io = _IO.get(loading.kind or 0, "unknown")
    for word, said in (("workspace", "workspace"), ("tiling", "tiling"), ("mc2", "mc2 context")):
        io = said if word in loading.what else io
    place = sum(1 for known in fault.arguments.values() if known.io == io and known.part == 0)
    index = next(
        (
            known.index
            for known in fault.arguments.values()
            if known.position == loading.index and known.io == io
        ),
        place,
    )
    if io == "unknown":
        index = loading.index
    argument = Argument(
        io=io,
        index=index,
        position=loading.index,
        part=loading.part,
        address=fields["address"],
        size=fields["size"],
    )
    _add(fault, argument)
    loading.part += 1


def _unreadable(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    """The log says that memory could not be copied: of the tensor with that address, else of the
    last one.
    """
    known = [
        key
        for key, one in fault.arguments.items()
        if fields["address"] and one.address == fields["address"]
    ]
    key = known[0] if known else next(reversed(fault.arguments), None)
    if key is not None:
        fault.arguments[key] = msgspec.structs.replace(
            fault.arguments[key], unreadable=fields["text"][:400]
        )
    fault.notes[("unreadable", fields["text"][:400])] = None


def _tiling_key(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    for key in ("tiling_key", "args_size", "block_dim"):
        if fields[key] is not None:
            fault.fields.setdefault(key, fields[key])


def _task(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    for key, name in (("device", "device_id"), ("stream", "stream_id"), ("task", "task_id")):
        if fault.fields.get(key) is None and fields[name] is not None:
            fault.fields[key] = fields[name]
    if not fault.failed and fields["stream_id"] is not None:
        fault.fields["assumed"] = True
    if fields["error"]:
        fault.notes[("task", fields["error"])] = None


def _returned(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    if len(fault.returned) < _LIMIT:
        fault.returned[Returned(fields["code"], fields["text"], fields["inner"])] = None


def _slog_register(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    if not fault.cores:
        if fields["name"] == "core_list":
            fault.fields["core_list"] = fields["value"]
        return
    fault.cores[-1] = with_registers(fault.cores[-1], {fields["name"]: fields["value"]})


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
            place = f"{name[:-6].lower()} error info"
            known[place] = known.get(place, 0) | (value & 0xFFFFFFFF) << 32 * int(name[-1])
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


def _slog_core(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    if len(fault.cores) < _LIMIT:
        core = Core(
            core=fields["core"], kind="aicore", device=fault.fields.get("device"), time=record.time
        )
        fault.cores.append(with_registers(core, fields["registers"]))


def _screen_core(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    codes = numbers(fields["code"])
    if (
        any(core.core == fields["core"] for core in fault.cores)
        or len(fault.cores) >= _LIMIT
        or not any(codes)
    ):
        return
    device = fault.fields.get("device")
    core = Core(
        core=fields["core"],
        kind="aicore",
        device=device,
        code=fields["code"],
        codes=codes,
        bits=registers.bits_of(codes),
    )
    fault.cores.append(msgspec.structs.replace(core, time=record.time))


def _analysed(fault: Open, fields: Mapping[str, Any], record: Record) -> None:
    place = next(
        (place for place, core in enumerate(fault.cores) if core.core == fields["core"]), None
    )
    if place is None:
        if len(fault.cores) < _LIMIT and not fault.cores:
            core = Core(
                core=fields["core"],
                kind=(fields["type"] or "").lower(),
                device=fault.device,
                time=record.time,
            )
            fault.cores.append(with_registers(core, fields["registers"]))
        return
    if fault.cores[place].numbering == CLASSIC:
        fault.cores[place] = with_registers(fault.cores[place], fields["registers"])


def _program(fault: Open, fields: Mapping[str, Any], _: Record) -> None:
    known = {key: value for key, value in fields.items() if value is not None and key != "core"}
    known.update(known.pop("values", {}))
    for key, value in known.items():
        fault.program.setdefault(key, value)


_READERS: dict[str, Callable[[Open, Mapping[str, Any], Record], object]] = {
    "core": _core,
    "extend": _extend,
    "failed": _failed,
    "node": _node,
    "tracked": _tracked,
    "tensor": _tensor,
    "described": _described,
    "args": _args,
    "load": _load,
    "load-type": _load_type,
    "load-data": _load_data,
    "unreadable": _unreadable,
    "tiling-key": _tiling_key,
    "task": _task,
    "returned": _returned,
    "slog-core": _slog_core,
    "slog-register": _slog_register,
    "screen-core": _screen_core,
    "analysed-registers": _analysed,
    "analysed-pc": _program,
    "analysed-symbol": _program,
    "symbolized": _program,
    "file": lambda fault, fields, _: fault.dump_files.setdefault(
        (fields["what"], fields["path"][:4096])
    ),
    "note": lambda fault, fields, _: fault.notes.setdefault(
        (fields["topic"], fields["text"][:1000])
    ),
    "fault-address": lambda fault, fields, _: fault.addresses.setdefault(fields["address"]),
    "module": lambda fault, fields, _: fault.fields.setdefault("module", fields["module"]),
    "first-tensor": lambda fault, fields, _: fault.fields.setdefault(
        "first_tensor", fields["index"]
    ),
}


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
    fields = fault.fields
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
        stream=fields.get("stream"),
        task=fields.get("task"),
        context=fields.get("context"),
        thread=fields.get("thread"),
        kernel=kernel,
        function=fault.failure.get("func_name"),
        failure=dict(fault.failure),
        node_name=fields.get("node_name"),
        node_type=fields.get("node_type"),
        described=dict(fault.described)
        | ({"module": fields["module"]} if "module" in fields else {}),
        level=_level(fault),
        arguments=tuple(fault.arguments.values()),
        words_before=before,
        words_after=after,
        tiling=tiling,
        tiling_cut=cut,
        tiling_key=fault.described.get("tiling_key")
        or (str(fields["tiling_key"]) if "tiling_key" in fields else None),
        block_dim=_block_dim(fault),
        args_size=fields.get("args_size"),
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
    return int(said) if said.isdecimal() and len(said) < 10 else fault.fields.get("block_dim")


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
    cut = "tiling_data" in fault.fields.get("cut", ())
    found = [int(byte, 16) for byte in _bytes_of(text, whole=not cut)]
    return bytes(found), cut


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
