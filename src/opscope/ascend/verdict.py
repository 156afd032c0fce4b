# SPDX-License-Identifier: Apache-2.0
"""What an AI Core error comes from, by the manual's tree: hardware, addresses, values of the
inputs, or the operator itself.

    does the operator fail alone?   no   -> addresses of its arguments
                                    yes  -> bad values in its inputs  -> their producer
                                            sound values              -> the operator, with the line

Evidence in the logs and dumps answers many branches without running anything. Each verdict has its
grounds and how sure it is; code is the one msaicerr ends with for the same conclusion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from opscope.ascend import registers
from opscope.ascend.addresses import AddressCheck
from opscope.ascend.bits import (
    ADDRESS,
    ALIGNMENT,
    BUFFER,
    CAUSES,
    CODE,
    CONFLICT,
    HARDWARE,
    PARAMETER,
    SYNC,
    TIMEOUT,
    VALUES,
    Bit,
)
from opscope.ascend.dumps import Dump
from opscope.ascend.fault import Fault
from opscope.ascend.graphs import Node
from opscope.ascend.kernels import Kernel
from opscope.ascend.objects import Place
from opscope.ascend.registers import TRAPS

_MEMORY_FAULT = re.compile(r"\bECC\b|uncorrectable|parity|memory error", re.IGNORECASE)
_HARDWARE_CODES = frozenset(
    ("507053", "507054")
)  # fault of the device memory, ECC error of several bits
_TRAP_CODES = {"507042": "a read", "507043": "a write", "507044": "a read", "507045": "a write"}
_INDEX = re.compile(r"\bindex|\bindices|out of range", re.IGNORECASE)
_REMOTE = re.compile(r"suspect remote", re.IGNORECASE)
# Operators that read and write other devices' memory themselves.
_COMMUNICATES = re.compile(
    r"moe_?(distribute|dispatch|combine)|all_?to_?all|all_?reduce|all_?gather|reduce_?scatter",
    re.IGNORECASE,
)
_TIMED_OUT = frozenset(("0x25", "0x30", "0x7150025", "0x7150030", "507014", "507034"))
_BUILT_IN = re.compile(
    r"_[0-9a-f]{32}"
)  # the hash in the names of kernels that the vendor's compiler makes
_DEVICE_BITS, _LEAST_ADDRESS, _FIRST_WORDS = (
    44,
    1 << 20,
    20,
)  # device memory is mapped at 0x1000_0000_0000 and above
_TRAP_ADVICE = (
    "the line of the kernel: see below",
    "check the shapes and the tiling the kernel was given",
)
_RANK = {"proven": 0, "likely": 1, "suspected": 2}
REPRODUCED, NOT_REPRODUCED = "reproduced", "not-reproduced"


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag_field="part", tag="verdict"):
    """One conclusion: cause is a word of a fixed set, text one sentence, grounds what it rests on,
    advice what to do next.
    """

    cause: str
    text: str
    confidence: str
    grounds: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    code: int | None = None


class Grounds(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a verdict may rest on."""

    fault: Fault
    checks: tuple[AddressCheck, ...] = ()
    node: Node | None = None
    kernel: Kernel | None = None
    dump: Dump | None = None
    place: Place | None = None
    case_result: str | None = None
    device_wrong: str | None = None


def verdicts(grounds: Grounds) -> tuple[Verdict, ...]:
    """All conclusions the grounds allow, the surest first and among equals in the manual's order;
    never empty.
    """
    conclusions = [_weighed(verdict, grounds) for rule in _RULES for verdict in rule(grounds)]
    conclusions.sort(key=lambda verdict: _RANK[verdict.confidence])
    return (*conclusions, *([] if conclusions else [_undecided(grounds)]))


def _weighed(verdict: Verdict, grounds: Grounds) -> Verdict:
    """A verdict about addresses, values or the operator is less sure the less there is to check it
    with.
    """
    absent = sum(1 for evidence in (grounds.node, grounds.kernel, grounds.dump) if evidence is None)
    if (
        verdict.cause not in ("addresses", "operator", "input values")
        or absent < 2
        or grounds.case_result is not None
    ):
        return verdict
    if verdict.cause == "operator" and verdict.confidence == "proven":
        return verdict  # a trap says so itself
    lower = {"proven": "likely", "likely": "suspected" if absent == 3 else "likely"}
    return msgspec.structs.replace(
        verdict, confidence=lower.get(verdict.confidence, verdict.confidence)
    )


def _bits(fault: Fault) -> list[Bit]:
    return [registers.bit(number, core.numbering) for core in fault.cores for number in core.bits]


def _hardware(grounds: Grounds) -> Iterator[Verdict]:
    bits = [bit for bit in _bits(grounds.fault) if bit.kind == HARDWARE]
    ras = [note.text for note in grounds.fault.notes if note.topic == "ras"]
    codes = [one.code for one in grounds.fault.returned if one.code in _HARDWARE_CODES]
    if not bits and not ras and not codes:
        return
    words = tuple(
        dict.fromkeys(
            [f"{bit.name}: {bit.meaning}" for bit in bits]
            + [text[:300] for text in ras]
            + [f"return code {code}" for code in codes]
        )
    )
    advice = (
        "npu-smi info -t health, ascend-dmi diagnosis; look for the RAS alarm of that time",
        "run on another card",
    )
    certain = any(_MEMORY_FAULT.search(text) for text in ras) or any(
        code in _HARDWARE_CODES for code in codes
    )
    confidence = "likely" if bits or certain else "suspected"
    yield Verdict(
        cause="hardware",
        text="the hardware: an ECC or parity error, not the operator",
        confidence=confidence,
        grounds=words,
        advice=advice,
        code=103,
    )


def _not_zeroed(grounds: Grounds) -> Iterator[Verdict]:
    """A dynamic kernel that accumulates into outputs nobody zeroed before."""
    kernel, fault = grounds.kernel, grounds.fault
    if kernel is None or not kernel.dynamic or not kernel.zeroed or not fault.informed:
        return
    name = grounds.node.name if grounds.node else fault.node_name
    if name is None or any(name == part or not part for part in fault.atomic_cleaned):
        return
    text = (
        f"argument {', '.join(map(str, kernel.zeroed))} is accumulated into, and nothing "
        "zeroed it before (atomic clean is missing)"
    )
    seen = (
        "the log has no AtomicLaunchKernelWithFlag of this node; the kernel's description asks "
        "for it (parameters)"
    )
    # Versions that never print that line clean in another way: only where other nodes have it is
    # its absence a sign.
    confidence = "likely" if fault.atomic_cleaned else "suspected"
    yield Verdict(
        cause="memset missing", text=text, confidence=confidence, grounds=(seen,), code=105
    )


def _trap(grounds: Grounds) -> Iterator[Verdict]:
    """Values that the compiler's own checks of addresses trap with, and the return codes of such a
    trap.
    """
    code = next(
        (returned.code for returned in grounds.fault.returned if returned.code in _TRAP_CODES), None
    )
    if code is not None:
        yield Verdict(
            cause="operator",
            text=f"the out-of-memory check: {_TRAP_CODES[code]} out of bounds",
            confidence="proven",
            grounds=(f"return code {code}",),
            advice=_TRAP_ADVICE,
            code=101,
        )
        return
    for core in grounds.fault.cores:
        for name, value in {**core.registers, **core.extend}.items():
            for word in value if isinstance(value, tuple) else (value,):
                if isinstance(word, int) and (word in TRAPS or word & 0xFFFFFFFF in TRAPS):
                    text = TRAPS.get(word) or TRAPS[word & 0xFFFFFFFF]
                    yield Verdict(
                        cause="operator",
                        text=f"the {text}",
                        confidence="proven",
                        grounds=(f"{name} of core {core.core} is {word:#x}",),
                        advice=_TRAP_ADVICE,
                    )
                    return


def _asserted(grounds: Grounds) -> Iterator[Verdict]:
    """An assertion of the kernel that its process printed before the core ran into the trap."""
    messages = [note.text for note in grounds.fault.notes if note.topic == "assert"]
    if not messages:
        return
    text = f"an assertion of the kernel failed: {messages[0]}"
    if _INDEX.search(messages[0]):
        advice = (
            (
                "an index is out of range: look at the indices the operator got, what made them, "
                "and the size they index"
            ),
        )
        yield Verdict(
            cause="input values",
            text=text,
            confidence="proven",
            grounds=tuple(messages[:8]),
            advice=advice,
            code=104,
        )
    else:
        yield Verdict(
            cause="operator",
            text=text,
            confidence="proven",
            grounds=tuple(messages[:8]),
            advice=_TRAP_ADVICE,
            code=101,
        )


def _remote(grounds: Grounds) -> Iterator[Verdict]:
    """The runtime's suspicion of another device's memory, and operators that access it by
    themselves.
    """
    fault = grounds.fault
    suspected = [
        code.code
        for code in fault.returned
        if code.code in ("507057", "0x222") or _REMOTE.search(code.text or "")
    ]
    communicates = _COMMUNICATES.search(
        " ".join((fault.kernel or "", fault.node_name or "", fault.node_type or ""))
    )
    if not suspected and not (communicates and any(bit.kind == ADDRESS for bit in _bits(fault))):
        return
    words = tuple(
        f"return code {code}: the runtime suspects another device"
        for code in dict.fromkeys(suspected)
    )
    if communicates:
        words += (
            (
                "this operator reads and writes other devices' memory: theirs is gone when their "
                "process ends or the link fails"
            ),
        )
    text = "memory of another device, probably: its process ended earlier, or the link to it failed"
    if not communicates:
        text += "; else an address that no device has"
    advice = (
        "the device that failed first: give the logs of all ranks",
        "the links between the devices at that time (hccn_tool, switch)",
    )
    confidence = "likely" if suspected and communicates else "suspected"
    yield Verdict(
        cause="remote device", text=text, confidence=confidence, grounds=words, advice=advice
    )


def _atomic(grounds: Grounds) -> Iterator[Verdict]:
    fault = grounds.fault
    if any(note.topic == "atomic" for note in fault.notes) and any(
        bit.name == "mte_biu_rdwr_resp" for bit in _bits(fault)
    ):
        text = (
            "an atomic accumulation overflowed: the values that are added up leave the range "
            "of their type"
        )
        yield Verdict(
            cause="atomic overflow",
            text=text,
            confidence="likely",
            grounds=("dha status 1 in the log", "mte_biu_rdwr_resp"),
            advice=("look for the first overflow: opscope scan on the overflow dump",),
            code=107,
        )


def _addresses(grounds: Grounds) -> Iterator[Verdict]:
    bad = [check for check in grounds.checks if check.bad]
    fits = any(bit.kind == ADDRESS for bit in _bits(grounds.fault))
    if bad:
        best = min(bad, key=lambda check: _RANK[check.confidence])
        text = f"a bad address: {best.tensor} {best.text}"
        words = tuple(
            f"{check.tensor} at {check.address:#x}: {check.status}, {check.text}"
            for check in bad
            if check.address is not None
        )
        words += ("the error bits are those of a failed access to global memory",) if fits else ()
        confidence = "likely" if best.confidence == "proven" and not fits else best.confidence
        if grounds.case_result == NOT_REPRODUCED and confidence == "suspected":
            confidence = "likely"
        advice = (
            (
                "who freed or sized that memory: look at the allocation, the tensor's producer "
                "and the workspace size"
            ),
        )
        yield Verdict(
            cause="addresses",
            text=text,
            confidence=confidence,
            grounds=words,
            advice=advice,
            code=102,
        )
    elif grounds.case_result == NOT_REPRODUCED:
        text = (
            "the operator runs alone, so it is not at fault: look at the addresses of its "
            "arguments and who else writes there"
        )
        advice = (
            (
                "run with ASCEND_GLOBAL_LOG_LEVEL=1 and give the new logs to opscope aicore: the "
                "allocations are in them"
            ),
        )
        yield Verdict(
            cause="addresses",
            text=text,
            confidence="likely",
            grounds=("the single-operator case does not fail",),
            advice=advice,
            code=102,
        )


def _host_address(grounds: Grounds) -> Iterator[Verdict]:
    """Arguments of a built-in kernel, which are all addresses, where one is not of device memory as
    those behind it are.
    """
    fault = grounds.fault
    words = (fault.words_after or fault.words_before)[:_FIRST_WORDS]
    device = [number for number, word in enumerate(words) if word >> _DEVICE_BITS == 1]
    if len(device) < 2 or _BUILT_IN.search(fault.kernel or "") is None:
        return
    odd = [
        number
        for number in range(device[-1])
        if _LEAST_ADDRESS <= words[number] < 1 << _DEVICE_BITS
    ]
    if odd:
        said = tuple(
            f"word {number} is {words[number]:#x}; word {device[-1]} is {words[device[-1]]:#x}"
            for number in odd
        )
        text = (
            f"argument word {odd[0]} ({words[odd[0]]:#x}) is no address of device memory: a "
            "tensor of the host, probably"
        )
        advice = (
            (
                "a tensor that was not moved to the device (x_cpu / y_npu), or arguments that "
                "were written over"
            ),
        )
        yield Verdict(
            cause="addresses",
            text=text,
            confidence="suspected",
            grounds=said,
            advice=advice,
            code=102,
        )


def _inputs(grounds: Grounds) -> Iterator[Verdict]:
    dump = grounds.dump
    bad = [tensor for tensor in dump.unsound if not tensor.zeroed] if dump is not None else []
    values = [bit for bit in _bits(grounds.fault) if bit.kind == VALUES]
    if bad:
        words = tuple(f"{tensor.label}: {', '.join(tensor.troubles)}" for tensor in bad)
        upstream = tuple(_producer(grounds, tensor.index) for tensor in bad)
        confidence = "likely" if values or grounds.case_result == REPRODUCED else "suspected"
        text = f"bad values in its inputs ({words[0]}): look upstream{upstream[0]}"
        words += tuple(f"{bit.name}: {bit.meaning}" for bit in values)
        advice = tuple(
            f"{tensor.label} comes from{made.removeprefix(',')}"
            for tensor, made in zip(bad, upstream, strict=True)
            if made
        )
        yield Verdict(
            cause="input values",
            text=text,
            confidence=confidence,
            grounds=words,
            advice=advice,
            code=104,
        )
    elif values and (dump is None or not any(tensor.statistics for tensor in dump.tensors)):
        bit = values[0]
        text = f"values of the inputs, by the error bit ({bit.name}: {bit.meaning})"
        yield Verdict(
            cause="input values",
            text=text,
            confidence="suspected",
            grounds=(f"{bit.name} is set",),
            advice=("dump and examine the inputs",),
            code=104,
        )


def _producer(grounds: Grounds, index: int) -> str:
    """`, produced by Unique (Unique)` of an input, empty where the graph is not there."""
    made = (
        next((producer for producer in grounds.node.producers if producer.slot == index), None)
        if grounds.node
        else None
    )
    if made is None:
        return ""
    original = f", in the model {', '.join(made.original)}" if made.original else ""
    return f", {made.name} ({made.type or 'type not in the graph'}{original})"


def _operator(grounds: Grounds) -> Iterator[Verdict]:
    bad = grounds.dump is not None and any(not tensor.zeroed for tensor in grounds.dump.unsound)
    if grounds.case_result == REPRODUCED and not bad:
        sound = grounds.dump is not None and any(
            tensor.statistics for tensor in grounds.dump.tensors
        )
        at = _line(grounds.place)
        words = ["the single-operator case fails too"] + (
            ["its dumped inputs hold no NaN or Inf"] if sound else []
        )
        text = f"the operator itself{at}: it fails alone" + (
            " with sound inputs" if sound else "; its input values are not known"
        )
        advice = (_to_read(grounds.place),)
        yield Verdict(
            cause="operator",
            text=text,
            confidence="proven" if sound else "likely",
            grounds=tuple(words),
            advice=advice,
            code=101,
        )
    elif grounds.device_wrong is not None:
        text = f"the device was wrong{_line(grounds.place)}: {grounds.device_wrong}"
        doubt = "the kernel may have died before it had written this output"
        advice = (
            (
                "run the single-operator case on the device: does it end, and is its output right "
                "then?"
            ),
        )
        yield Verdict(
            cause="operator",
            text=text,
            confidence="suspected",
            grounds=(grounds.device_wrong, doubt),
            advice=advice,
            code=101,
        )


def _to_read(place: Place | None) -> str:
    """Where to read on; what is missing for a line where none is known."""
    rest = "with the shapes, attributes and tiling above"
    if place is not None and place.source is not None:
        return f"read the kernel at that line, {rest}"
    lacking = (
        place.hint if place is not None else None
    ) or "its line takes the .o and .cce that op_debug_level 2 keeps (--kernel-meta)"
    return (
        "read the "
        f"kernel{f' function {place.symbol}' if place is not None and place.symbol else ''}, "
        f"{rest}; {lacking}"
    )


def _line(place: Place | None) -> str:
    if place is None or (place.source is None and place.symbol is None):
        return ""
    return f", at {place.python or place.source}" if place.source else f", in {place.symbol}"


def _overwritten(grounds: Grounds) -> Iterator[Verdict]:
    """Argument words that differ before and after; not those of a host buffer, which the runtime
    reuses.
    """
    before, after = grounds.fault.words_before, grounds.fault.words_after
    if not before or not after or any(note.topic == "host-args" for note in grounds.fault.notes):
        return
    changed = [
        number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new
    ]
    if changed:
        words = tuple(
            f"word {number}: {before[number]:#x} before, {after[number]:#x} after"
            for number in changed[:8]
        )
        text = (
            f"the kernel's arguments changed while it ran ({len(changed)} words): something "
            "writes over them"
        )
        yield Verdict(
            cause="args overwritten", text=text, confidence="likely", grounds=words, code=106
        )


def _program(grounds: Grounds) -> Iterator[Verdict]:
    for core in grounds.fault.cores:
        if core.register("current") == 0:
            text = (
                "the program counter is 0: the core did not run the kernel; a broken binary, "
                "or the environment"
            )
            yield Verdict(
                cause="environment",
                text=text,
                confidence="suspected",
                grounds=(f"current of core {core.core} is 0",),
                code=103,
            )
            return


def _undecided(grounds: Grounds) -> Verdict:
    """What the error bits alone suggest."""
    bits = _bits(grounds.fault)
    advice = (
        (
            "run the single-operator case on the device, then: opscope aicore … --case-result "
            "reproduced|not-reproduced"
        ),
    )
    if not grounds.fault.cores:
        text = "not decided: the logs hold no registers of the core"
        return Verdict(cause="undecided", text=text, confidence="suspected", advice=advice)
    if not bits:
        text = (
            "the operator, probably: no error bit is set, so the kernel did not end in time or "
            "ran into a trap"
        )
        if any(code.code in _TIMED_OUT for code in grounds.fault.returned):
            text = (
                "the operator, probably: it did not end in time (an endless loop, a wait "
                "without its set, a wait for another device)"
            )
        words = (CAUSES[TIMEOUT],)
        return Verdict(
            cause="operator", text=text, confidence="suspected", grounds=words, advice=advice
        )
    bit = bits[0]
    cause, what = _USUAL.get(bit.kind, ("undecided", "not decided"))
    at = _line(grounds.place) if cause == "operator" else ""
    text = f"{what}{at}, by the error bit alone ({bit.name}: {bit.meaning})"
    return Verdict(
        cause=cause,
        text=text,
        confidence="suspected",
        grounds=(f"{bit.name} usually means: {bit.cause}",),
        advice=advice,
    )


_USUAL = {
    ADDRESS: ("addresses", "an address of its arguments, probably"),
    VALUES: ("input values", "values of its inputs, probably"),
    **dict.fromkeys(
        (BUFFER, PARAMETER, ALIGNMENT, CODE, CONFLICT, SYNC, TIMEOUT),
        ("operator", "the operator, probably"),
    ),
}
_Rule = Callable[[Grounds], Iterator[Verdict]]
_RULES: tuple[_Rule, ...] = (
    _not_zeroed,
    _hardware,
    _trap,
    _asserted,
    _atomic,
    _addresses,
    _host_address,
    _remote,
    _inputs,
    _operator,
    _overwritten,
    _program,
)
