# SPDX-License-Identifier: Apache-2.0
"""One bit of an error register: what it is called, what it means, and what usually causes it."""

from __future__ import annotations

import msgspec

# What a bit speaks of, and what to look at then.
HARDWARE, ADDRESS, BUFFER, VALUES, PARAMETER, ALIGNMENT, CODE, CONFLICT, SYNC, TIMEOUT = (
    "hardware",
    "address",
    "buffer",
    "values",
    "parameter",
    "alignment",
    "code",
    "conflict",
    "sync",
    "timeout",
)
CAUSES = {
    HARDWARE: "a memory or parity fault of the chip; see the RAS alarms, run the hardware "
    "diagnosis, then change the card",
    ADDRESS: "an address in global memory that is not mapped, was freed, or lies beyond its "
    "tensor; check the arguments' addresses",
    BUFFER: "an address computed by the kernel leaves its on-chip buffer; the tiling or a shape "
    "is wrong, or the kernel has a bug",
    VALUES: "values of an input (NaN, Inf, zero, negative); examine the dumped inputs and look at "
    "their producer",
    PARAMETER: "parameters of an instruction that its rules forbid; the tiling or a shape is "
    "wrong, or the kernel has a bug",
    ALIGNMENT: "an address that is not aligned as the instruction needs; check the tensors' "
    "addresses and the tiling",
    CODE: "the instruction itself: a binary of another version, memory of the program overwritten "
    "or freed, or a wild jump",
    CONFLICT: "two units use the same place at once; set_flag and wait_flag of the kernel are not "
    "paired",
    SYNC: "set and wait (flags, counters, cores) that do not match in the kernel",
    TIMEOUT: "the kernel did not end or ran into a trap (assertion, out-of-memory check, wait "
    "without set)",
}


class Bit(msgspec.Struct, frozen=True):
    """One bit: its number, name, unit (BIU, CCU, CUBE, FIXP, IFU, MTE, VEC, SC, SU, L1), meaning
    and kind of cause.
    """

    number: int
    name: str
    unit: str
    meaning: str
    kind: str

    @property
    def cause(self) -> str:
        """What usually causes it and what to look at."""
        return CAUSES.get(self.kind, "not documented; look at the error string in the log")
