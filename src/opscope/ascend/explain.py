# SPDX-License-Identifier: Apache-2.0
"""An analysed error as a finding: everything known about it as its evidence, which every report
draws from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from opscope.ascend import registers
from opscope.ascend.analysis import Analysis
from opscope.ascend.bits import Bit
from opscope.ascend.codes import ELSEWHERE, acl_code, return_code, screen_code
from opscope.ascend.evidence import (
    AddressesPart,
    ArgumentsPart,
    CallPart,
    CoreFilePart,
    CoresPart,
    Counter,
    DumpPart,
    ErrorPart,
    Hex,
    KernelPart,
    MissingPart,
    NodePart,
    PlacePart,
    ReferencePart,
    ReturnedPart,
    SeenCode,
    TilingPart,
    ToldBit,
    ToldBlock,
    ToldCheck,
    ToldCode,
    ToldCore,
    ToldLocal,
    ToldOwner,
    ToldPlace,
    ToldTensor,
)
from opscope.ascend.fault import Core
from opscope.ascend.find import Collection
from opscope.ascend.graphs import Node
from opscope.ascend.kernels import Kernel
from opscope.ascend.objects import Place
from opscope.ascend.program import ProgramCounter, words950
from opscope.ascend.registers import CLASSIC
from opscope.ascend.tensors import KernelTensor
from opscope.formats.cann.corefile import CoreFile
from opscope.run.finding import Document, Finding, Slot

_MAX_WORDS = 4096
_INFO = ("vec", "mte", "ifu", "ccu", "cube", "biu")


def document(
    analyses: Sequence[Analysis],
    *,
    collection: Collection,
    read: int,
    codes: dict[str, str],
    runs: Sequence[str],
) -> Document:
    """The answer of `opscope aicore`; read is the number of logs."""
    others = [
        SeenCode(code=code, text=text, meaning=meaning)
        for code, text in codes.items()
        if (meaning := _meaning(code))
    ]
    problems = [
        *collection.problems,
        *(problem for analysis in analyses for problem in analysis.problems),
    ]
    files = {
        "logs": read,
        "graphs": len(collection.graphs),
        "kernels": len(collection.kernels),
        "objects": len(collection.objects),
        "dumps": len(collection.dumps),
        "cores": len(collection.cores),
    }
    summary: dict[str, Any] = {
        "files": files,
        "codes": others,
        "warnings": list(dict.fromkeys(problems)),
    }
    if not analyses:
        summary["text"] = f"no AI Core error in {read} file{'' if read == 1 else 's'}"
    return Document(
        verb="aicore",
        runs=tuple(runs),
        verdict="found" if analyses else "clean",
        complete=not collection.problems,
        findings=tuple(finding(analysis) for analysis in analyses),
        summary=summary,
    )


def _meaning(code: str) -> str | None:
    if code in ELSEWHERE:
        return ELSEWHERE[code]
    meaning = acl_code(int(code)) if code.isdecimal() and len(code) < 10 else screen_code(code)
    return None if meaning is None else meaning.text


def finding(analysis: Analysis) -> Finding:
    """One error as a finding."""
    fault = analysis.fault
    place, called_at = analysis.place, analysis.call.source if analysis.call is not None else None
    return Finding(
        kind="aicore-error",
        call=analysis.name or fault.kernel,
        op=analysis.operator,
        source=((place.python or place.source) if place else None) or called_at,
        status=next((core.code for core in fault.cores if core.code), None),
        reasons=tuple(_reasons(analysis)),
        confidence=analysis.verdict.confidence,
        evidence=tuple(_parts(analysis)),
        inputs=tuple(
            _slot(analysis, tensor) for tensor in analysis.tensors if tensor.io == "input"
        ),
        outputs=tuple(
            _slot(analysis, tensor) for tensor in analysis.tensors if tensor.io == "output"
        ),
    )


def _reasons(analysis: Analysis) -> Iterator[str]:
    reasons: dict[str, None] = {}
    for core in analysis.fault.cores:
        reasons.update(
            dict.fromkeys(f"{bit.name}: {bit.meaning}{_typed(core, bit)}" for bit in _bits(core))
        )
        if not core.bits:
            reasons["timeout or trap: no error bit is set"] = None
    yield from reasons or {"the logs hold no registers of the core": None}


def _typed(core: Core, bit: Bit) -> str:
    """`; the MTE info says write bus error`, for bits whose unit leaves the kind of the access in
    its info register.
    """
    unit = registers.TYPED.get(bit.number) if core.numbering == CLASSIC else None
    word = core.register(f"{unit} error info") if unit else None
    if unit is None or word is None:
        return ""
    words = next(field.value for field in registers.decode_info(unit, word) if field.name == "type")
    return f"; the {unit.upper()} info says {words.partition(' ')[2]}"


def _bits(core: Core) -> list[Bit]:
    return [registers.bit(number, core.numbering) for number in core.bits]


def _slot(analysis: Analysis, tensor: KernelTensor) -> Slot:
    dumped = (
        next(
            (
                dumped
                for dumped in analysis.dump.tensors
                if (dumped.io, dumped.index) == (tensor.io, tensor.index)
            ),
            None,
        )
        if analysis.dump
        else None
    )
    slot = str(tensor.index) if tensor.part == 0 else f"{tensor.index}.{tensor.part}"
    stats = (
        dict(dumped.statistics) | ({"denormal": dumped.denormal} if dumped.denormal else {})
        if dumped
        else {}
    )
    return Slot(
        slot=slot,
        dtype=tensor.dtype or "unknown",
        shape=tensor.shape,
        stats=stats,
        tensor_name=tensor.name,
    )


def _parts(analysis: Analysis) -> Iterator[msgspec.Struct]:
    yield from analysis.verdicts
    yield _error(analysis)
    cores = zip(analysis.fault.cores, analysis.counters, strict=True)
    yield CoresPart(cores=tuple(_core(core, counter) for core, counter in cores))
    yield ReturnedPart(codes=tuple(_returned(analysis)))
    yield ArgumentsPart(
        tensors=tuple(map(_tensor, analysis.tensors)),
        words_before=tuple(map(hex, analysis.fault.words_before[:_MAX_WORDS])),
        words_after=tuple(map(hex, analysis.fault.words_after[:_MAX_WORDS])),
        block_dim=analysis.fault.block_dim,
        args_size=analysis.fault.args_size,
    )
    yield _addresses(analysis)
    yield _tiling(analysis)
    yield from _sources(analysis)
    if analysis.call is not None:
        yield CallPart(**_named(CallPart, analysis.call))
    if analysis.case is not None:
        yield analysis.case
    yield MissingPart(items=analysis.missing)


def _named(kind: type[msgspec.Struct], record: msgspec.Struct, **others: Any) -> dict[str, Any]:
    """What a record knows of the fields of another kind, by their names; others as they are
    given.
    """
    known = {name: getattr(record, name) for name in kind.__struct_fields__ if name not in others}
    return {**known, **others}


def _error(analysis: Analysis) -> ErrorPart:
    fault = analysis.fault
    others = {
        "function": fault.dev_func,
        "operator": analysis.operator,
        "node": analysis.name,
        "dump_level": fault.level,
        "description": fault.described,
        "case_result": analysis.case_result,
    }
    return ErrorPart(**_named(ErrorPart, fault, **others))


def _core(core: Core, counter: ProgramCounter | None) -> ToldCore:
    return ToldCore(
        core=core.core,
        kind=core.kind,
        device=core.device,
        die=core.die,
        serial=core.serial,
        code=core.code,
        codes=tuple(map(hex, core.codes)),
        numbering=core.numbering,
        message=core.message,
        time=core.time,
        bits=tuple(ToldBit(**_named(ToldBit, bit)) for bit in _bits(core)),
        registers={name: _words(value) for name, value in core.registers.items()},
        extend={
            name: value if name in _PLAIN else _words(value) for name, value in core.extend.items()
        },
        decoded=_decoded(core),
        pc=None if counter is None else _counter(counter),
    )


_PLAIN = frozenset(("fsmId", "tslot", "thread", "ctxid", "blk", "sublk", "subErrType"))


def _words(value: int | tuple[int, ...]) -> Hex:
    return [hex(word) for word in value] if isinstance(value, tuple) else hex(value)


def _hex(value: int | None) -> str | None:
    return None if value is None else hex(value)


def _decoded(core: Core) -> dict[str, dict[str, Any]]:
    """Fields of the error info registers, by unit."""
    if core.numbering != CLASSIC:
        return {
            unit: {"words": [hex(word) for word in words]}
            for unit in ("sc", "su", "mte", "vec", "cube", "l1")
            if (words := words950(core, unit))
        }
    return {
        unit: {field.name: field.value for field in registers.decode_info(unit, word)}
        | _meant(unit, core)
        for unit in _INFO
        if (word := core.register(f"{unit} error info")) is not None
    }


def _meant(unit: str, core: Core) -> dict[str, Any]:
    """What must be known to read a unit's fields: those of a unit that is not at fault are left
    over from before.
    """
    typed = next((number for number, name in registers.TYPED.items() if name == unit), None)
    if typed is not None and typed not in core.bits:
        return {"note": f"bit {typed} is not set: the type says nothing"}
    return {}


def _counter(counter: ProgramCounter) -> Counter:
    return Counter(
        start=hex(counter.start),
        current=hex(counter.current),
        current_offset=hex(counter.current - counter.start)
        if counter.current >= counter.start
        else None,
        fixed=_hex(counter.fixed),
        offset=hex(counter.offset) if counter.offset >= 0 else None,
        method=counter.method,
        heuristic_offset=_hex(counter.heuristic),
    )


def _returned(analysis: Analysis) -> Iterator[ToldCode]:
    seen: set[str] = set()
    for code in sorted(analysis.fault.returned, key=lambda code: code.text is None):
        if code.code in seen:
            continue
        seen.add(code.code)
        number = int(code.code, 16) if code.code.startswith("0x") else int(code.code)
        meaning = acl_code(number)
        yield ToldCode(
            code=code.code,
            name=meaning.name if meaning else None,
            text=code.text or return_code(number) or (meaning.text if meaning else None),
            inner=code.inner,
        )


def _tensor(tensor: KernelTensor) -> ToldTensor:
    address, said_address = _hex(tensor.address), _hex(tensor.said_address)
    return ToldTensor(**_named(ToldTensor, tensor, address=address, said_address=said_address))


def _addresses(analysis: Analysis) -> AddressesPart:
    return AddressesPart(
        checks=tuple(
            ToldCheck(**_named(ToldCheck, check, address=_hex(check.address)))
            for check in analysis.checks
        ),
        owners=tuple(
            ToldOwner(source=owner.source, address=hex(owner.address), text=owner.text)
            for owner in analysis.owners
        ),
        allocations=None if analysis.fault.allocations is None else len(analysis.fault.allocations),
    )


def _tiling(analysis: Analysis) -> TilingPart:
    tiling = analysis.tiling
    return TilingPart(
        key=analysis.fault.tiling_key,
        bytes=tiling.data.hex(" "),
        held=len(tiling.data),
        size=tiling.size,
        address=_hex(tiling.address),
        word=tiling.word,
        source=tiling.source,
        cut=tiling.cut,
        words32=tuple(
            int.from_bytes(tiling.data[at : at + 4], "little")
            for at in range(0, len(tiling.data) - 3, 4)
        ),
    )


def _sources(analysis: Analysis) -> Iterator[msgspec.Struct]:
    if analysis.node is not None:
        yield _node(analysis.node)
    if analysis.kernel is not None:
        yield _kernel(analysis.kernel, analysis)
    if analysis.place is not None:
        yield _place(analysis.place, analysis.heuristic_place)
    if analysis.core is not None:
        yield _core_file(analysis.core)
    if analysis.dump is None:
        return
    if analysis.judged is not None:
        yield ReferencePart(**analysis.judged._asdict())
    yield DumpPart(**_named(DumpPart, analysis.dump))


def _node(node: Node) -> NodePart:
    attributes = {"attributes": node.operator_attributes, "all_attributes": node.attributes}
    return NodePart(**_named(NodePart, node, **attributes))


def _kernel(kernel: Kernel, analysis: Analysis) -> KernelPart:
    return KernelPart(**_named(KernelPart, kernel, objects=tuple(map(str, analysis.objects))))


def _place(place: Place, heuristic: Place | None) -> PlacePart:
    other = (
        None
        if heuristic is None
        else ToldPlace(**_named(ToldPlace, heuristic, offset=hex(heuristic.offset)))
    )
    return PlacePart(**_named(PlacePart, place, offset=hex(place.offset), heuristic=other))


def _core_file(core: CoreFile) -> CoreFilePart:
    return CoreFilePart(
        file=core.path,
        kernel=core.kernel,
        device=core.device,
        blocks=tuple(
            ToldBlock(**_named(ToldBlock, block, address=hex(block.address)))
            for block in core.blocks
        ),
        locals=tuple(ToldLocal(**_named(ToldLocal, local)) for local in core.locals),
        registers={
            register.core: {hex(address): hex(value) for address, value in register.values.items()}
            for register in core.registers
        },
    )
