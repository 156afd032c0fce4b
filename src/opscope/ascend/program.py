# SPDX-License-Identifier: Apache-2.0
"""Where in the kernel a core stopped: the program counter put right, and how far into the kernel
that is.

`current` is where the scalar unit was when the error was noticed; the unit at fault lies behind it.
On 910B, A3 and Ascend 950 the error registers hold the low bits of the instruction itself (the
runtime's own correction). The older heuristic of msaicerr guesses them from fewer bits. Both are
reported.
"""

from __future__ import annotations

import msgspec

from opscope.ascend import registers
from opscope.ascend.fault import Core, Fault
from opscope.ascend.registers import CLASSIC

_ADDRESS = (1 << 48) - 1  # above lie flags of the task
_FIXABLE = ("CUBE", "CCU", "MTE", "VEC", "FIXP")
_LOW20 = (1 << 20) - 1
_HIGH = {
    "CUBE": 24,
    "CCU": 23,
}  # where PC[17:10] begins in the info word; of the other units in its high half


class ProgramCounter(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses on the device and offsets into the kernel, in bytes; fixed is by the registers,
    None where they do not say.

    method says what fixed came from; heuristic is msaicerr's offset. Offset is the best there is.
    """

    start: int
    current: int
    fixed: int | None = None
    method: str = ""
    heuristic: int | None = None

    @property
    def offset(self) -> int:
        """Bytes from the start of the kernel to the instruction at fault, by the registers, else by
        the current counter.
        """
        fixed = (
            self.fixed if self.fixed is not None and self.fixed >= self.start else None
        )  # one before the kernel is not its own
        return (self.current if fixed is None else fixed) - self.start


def program_counter(core: Core, fault: Fault | None = None) -> ProgramCounter | None:
    """The program counter of a core; None when the log has none."""
    start, current = _start(core, fault), core.register("current")
    if start is None or current is None:
        return None
    start, current = start & _ADDRESS, current & _ADDRESS
    said = _said(fault)
    fixed, method = (
        _fixed_classic(core, current) if core.numbering == CLASSIC else _fixed_950(core, current)
    )
    if said is not None:
        fixed, method = said & _ADDRESS, "exception dump itself"
    return ProgramCounter(
        start=start,
        current=current,
        fixed=fixed,
        method=method,
        heuristic=_heuristic(core, start, current),
    )


def _said(fault: Fault | None) -> int | None:
    """The counter that the newest dump worked out itself; its zero means that it could not."""
    return (
        (fault.program.get("fixedCurrentPC") or None)
        if fault is not None and len(fault.cores) == 1
        else None
    )


def _start(core: Core, fault: Fault | None) -> int | None:
    """Where the kernel begins; where two ran at once, the log's task id says whose counter it
    is.
    """
    second = core.register("second pc start")
    if second is not None and fault is not None and fault.task is not None:
        if core.register("second taskid") == fault.task and core.register("second streamid") in (
            None,
            fault.stream,
        ):
            return second
        if core.register("first taskid") == fault.task:
            return core.register("first pc start")
    return (
        core.register("pc start")
        if core.register("pc start") is not None
        else core.register("first pc start")
    )


def _unit(core: Core) -> str | None:
    """The one unit of the set bits that leaves its counter in a register; None for none and for
    several.
    """
    units = [
        unit
        for unit in registers.units(core.bits, core.numbering)
        if unit in _FIXABLE or core.numbering != CLASSIC
    ]
    return units[0] if len(units) == 1 else None


def _fixed_classic(core: Core, current: int) -> tuple[int | None, str]:
    """PC[9:2] and PC[17:10] out of the unit's info register, the other bits as they are (910B and
    A3 only).
    """
    unit = _unit(core)
    if unit is None or not (
        "fsmId" in core.extend or core.die is not None or "fixp_error0 info" in core.registers
    ):
        return None, ""
    if unit == "FIXP":
        low_word, high_word = (_word(core, f"fixp_error{half} info") for half in (0, 1))
        if low_word is None or high_word is None:
            return None, ""
        low, top = low_word & 0xFF, high_word & 0xFF
    else:
        word = core.register(f"{unit.lower()} error info")
        if word is None:
            return None, ""
        low, top = word & 0xFF, word >> _HIGH.get(unit, 32) & 0xFF
    return (current & ~0x3FFFC) | low << 2 | top << 10, f"{unit} info register"


def _word(core: Core, name: str) -> int | None:
    value = core.extend.get(name, core.registers.get(name))
    return value[0] if isinstance(value, tuple) else value


_WORDS950 = {"su": 4, "mte": 3, "vec": 6, "cube": 2, "l1": 2}


def words950(core: Core, unit: str) -> tuple[int, ...]:
    """The 32-bit info registers of a unit of Ascend 950; logs print them singly or two in one
    word.
    """
    value = core.registers.get(f"{unit} error info", ())
    words = value if isinstance(value, tuple) else (value,)
    if len(words) < _WORDS950.get(unit, 0) and (
        len(words) > 1 or unit in ("cube", "l1") or any(word >> 32 for word in words)
    ):
        return tuple(half for word in words for half in (word & 0xFFFFFFFF, word >> 32))
    return words


def _fixed_950(core: Core, current: int) -> tuple[int | None, str]:
    """PC[17:2] out of info bits 15:0 (SU and MTE: register 0, CUBE and L1: register 1); VEC holds
    the whole counter.
    """
    unit = (_unit(core) or "").lower()
    unit = "l1" if unit == "fixp" else unit
    words = words950(core, unit) if unit in _WORDS950 else ()
    if unit == "vec":
        if len(words) < 3:
            return None, ""
        return words[1] | (words[2] & 0x1FFFF) << 32, "VEC info registers 1 and 2"
    number = 1 if unit in ("cube", "l1") else 0
    if len(words) <= number:
        return None, ""
    doubt = "" if unit != "cube" else ", whose width no source states for certain"
    return (current & ~0x3FFFC) | (
        words[number] & 0xFFFF
    ) << 2, f"{unit.upper()} info register {number}{doubt}"


def _heuristic(core: Core, start: int, current: int) -> int | None:
    """Offset by msaicerr's rule: eight bits of the info register (sixteen for MTE), in the last
    five hexadecimal digits.
    """
    if core.numbering != CLASSIC:
        return None
    low_start, low = start & _LOW20, current & _LOW20
    unit = next(
        (unit for unit in registers.units(core.bits) if unit in ("VEC", "MTE", "CUBE")), None
    )
    word = core.register(f"{unit.lower()} error info") if unit else None
    if word is None:
        return current - start
    if unit == "MTE":
        fixed = (low & ~0x3FFFF) | ((word >> 32 & 0xFF) << 8 | word & 0xFF) << 2
    else:
        fixed = (low & ~0x3FF) | (word & 0xFF) << 2 | low & 3
        if fixed - 1024 > low_start and fixed > low:
            fixed -= 1024
    return fixed - low_start if fixed >= low_start else current - start
