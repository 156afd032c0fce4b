# SPDX-License-Identifier: Apache-2.0
"""AI Core errors as text: a short verdict for the terminal, and info.txt with the sections
msaicerr's users know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from opscope.ascend.analysis import Missing, WrittenCase
from opscope.ascend.evidence import (
    AddressesPart,
    ArgumentsPart,
    CallPart,
    CoreFilePart,
    CoresPart,
    DumpPart,
    ErrorPart,
    KernelPart,
    MissingPart,
    NodePart,
    PlacePart,
    ReferencePart,
    ReturnedPart,
    TilingPart,
    ToldCheck,
    ToldCore,
    ToldPlace,
    ToldTensor,
    part,
    parts,
)
from opscope.ascend.graphs import TensorDesc
from opscope.ascend.verdict import Verdict
from opscope.report.console import folded, line, make_console, print_lines
from opscope.report.oneline import one_line
from opscope.run.finding import Document, Finding
from opscope.run.printable import printable, spans

_SHOWN_TENSORS = 8
_SHOWN_MISSING = 4
_SHOWN_KINDS = 20
_SHOWN_AGAIN = 6
_STYLES = {"proven": "bold red", "likely": "red", "suspected": "yellow"}


def _error(finding: Finding) -> ErrorPart:
    return part(finding, ErrorPart) or ErrorPart()


def _cores(finding: Finding) -> tuple[ToldCore, ...]:
    return (part(finding, CoresPart) or CoresPart()).cores


def _missing(finding: Finding) -> tuple[Missing, ...]:
    return (part(finding, MissingPart) or MissingPart()).items


def print_aicore(document: Document, *, written: str | None = None) -> None:
    """Draw a document; colour only on a terminal."""
    console = make_console()
    print_lines(console, aicore_lines(document, width=console.width, written=written))


def aicore_lines(document: Document, *, width: int, written: str | None = None) -> Iterator[Text]:
    """The lines for a terminal of this width."""
    if not document.findings:
        yield line(document.summary.get("text", "no AI Core error"))
    for number, finding, again in _kinds(document.findings):
        yield from _short(finding, number, len(document.findings), width=width)
        if again:
            yield from folded("again   ", _again(again), width=width, style="yellow")
    for code in document.summary.get("codes", ()):
        if not document.findings:
            yield from folded(f"{code.code}  ", code.meaning, width=width)
    for warning in document.summary.get("warnings", ()):
        yield from folded("warning  ", str(warning), width=width, style="yellow")
    if written is not None:
        yield line(("written  ", "bold"), written)


def _kinds(findings: Sequence[Finding]) -> Iterator[tuple[int, Finding, list[tuple[int, Finding]]]]:
    """Number and finding of each different error, with those that repeat it; of very many only the
    first ones.
    """
    by_error: dict[Any, list[tuple[int, Finding]]] = {}
    for number, finding in enumerate(findings, 1):
        error, verdict = _error(finding), part(finding, Verdict)
        key = (
            finding.op,
            finding.call,
            error.function,
            error.device,
            finding.reasons,
            verdict and verdict.text,
        )
        by_error.setdefault(key, []).append((number, finding))
    kinds = list(by_error.values())
    for (number, finding), *again in kinds[:_SHOWN_KINDS]:
        yield number, finding, again
    if kinds[_SHOWN_KINDS:]:
        (number, finding), *_ = kinds[_SHOWN_KINDS]
        yield (
            number,
            finding,
            [entry for kind in kinds[_SHOWN_KINDS:] for entry in kind if entry[0] != number],
        )


def _again(again: Sequence[tuple[int, Finding]]) -> str:
    times = [time for _, finding in again if (time := _error(finding).time)]
    until = f", the last at {times[-1]}" if times else ""
    which = ", ".join(str(number) for number, _ in again[:_SHOWN_AGAIN]) + (
        ", …" if again[_SHOWN_AGAIN:] else ""
    )
    same = len({finding.reasons for _, finding in again}) == 1
    return (
        f"{len(again)} more {'like it' if same else 'errors'} ({which}){until}; all of them: "
        "--json, or -o FOLDER"
    )


def _short(finding: Finding, number: int, count: int, *, width: int) -> Iterator[Text]:
    error, cores = _error(finding), core_list(finding)
    head = f"AI Core error {number} of {count}  " if count > 1 else "AI Core error  "
    yield from folded(
        head,
        f"{finding.op or 'operator not known'}  {finding.call or ''}".rstrip(),
        width=width,
        style="bold red",
    )
    facts = [text for text in (_task(finding), cores, error.generation, error.time) if text]
    yield from folded("  where   ", "; ".join(facts), width=width)
    if error.function:
        yield from folded("  kernel  ", error.function, width=width)
    for reason in finding.reasons[:4]:
        yield from folded(f"  {code_of(finding, reason) or 'code'}  ", reason, width=width)
    yield from _messages(finding, width=width)
    source_place, call = part(finding, PlacePart), part(finding, CallPart)
    if source_place is not None:
        yield from _place_lines(source_place, width=width)
    if call is not None:
        yield from folded("  call    ", _called(call), width=width)
    yield from _argument_lines(finding, width=width)
    yield from _value_lines(finding, width=width)
    yield from _verdict_lines(parts(finding, Verdict), width=width)
    case = part(finding, WrittenCase)
    if case is not None:
        status = f": {case.status}, {case.reason}" if case.status else ""
        yield from folded("case     ", f"{case.folder}{status}", width=width)
    for item in _missing(finding)[:_SHOWN_MISSING]:
        yield from folded("missing  ", f"{item.what}: {item.how}", width=width, style="yellow")


def _task(finding: Finding) -> str:
    error = _error(finding)
    known = [
        f"{name} {number}"
        for name in ("stream", "task", "context")
        if (number := getattr(error, name)) is not None
    ]
    return ", ".join([*_device(finding), *known])


def _value_lines(finding: Finding, *, width: int) -> Iterator[Text]:
    """What is wrong with dumped values, and how they compare with the CPU's."""
    dump, reference = part(finding, DumpPart), part(finding, ReferencePart)
    for tensor in dump.tensors if dump is not None else ():
        if tensor.troubles:
            troubles = f"{tensor.label}: {', '.join(tensor.troubles)}"
            yield from folded("  dump    ", troubles, width=width)
    if reference is not None and reference.status in ("agrees", "differs"):
        yield from folded("  cpu     ", reference.text, width=width)


def _verdict_lines(verdicts: Sequence[Verdict], *, width: int) -> Iterator[Text]:
    for number, verdict in enumerate(verdicts):
        yield from folded(
            "verdict  " if number == 0 else "or       ",
            f"{verdict.text} [{verdict.confidence}]",
            width=width,
            style=_STYLES.get(verdict.confidence, ""),
        )
        for advice in verdict.advice if number == 0 else ():
            yield from folded("  next   ", advice, width=width)


def _device(finding: Finding) -> Iterator[str]:
    """`device 3`; `chip 4, die 1` of a chip with two devices whose own numbers no line tells."""
    error = _error(finding)
    die = next((core.die for core in _cores(finding)), None)
    if error.device is not None:
        own = not die or "device_id" in error.failure or error.task is not None
        yield f"device {error.device}" if own else f"chip {error.device}, die {die}"


def code_of(finding: Finding, reason: str) -> str | None:
    """The error code that a reason was read from: that of the first core with its bit; all words
    where the first is zero.
    """
    name = reason.partition(":")[0]
    named = (core for core in _cores(finding) if any(bit.name == name for bit in core.bits))
    accused = next(named, None)
    if accused is None:
        return finding.status
    later = accused.code in ("0", "0x0") and any(code != "0x0" for code in accused.codes)
    return ", ".join(accused.codes) if later else accused.code


def _argument_lines(finding: Finding, *, width: int) -> Iterator[Text]:
    """Inputs and outputs with what was found out about their addresses; the others only where
    something is wrong.
    """
    addresses = part(finding, AddressesPart) or AddressesPart()
    checks = {check.tensor: check for check in addresses.checks}
    shown = hidden = 0
    for tensor in (part(finding, ArgumentsPart) or ArgumentsPart()).tensors:
        check = checks.get(tensor.label)
        given = tensor.io in ("input", "output", "unknown")
        if not _is_wrong(check) and (not given or shown >= _SHOWN_TENSORS):
            hidden += given
            continue
        shown += 1
        yield from _argument_line(tensor, check, width=width)
    if hidden:
        yield line(f"          {hidden} more, with nothing wrong: info.txt (-o FOLDER)")


def _argument_line(tensor: ToldTensor, check: ToldCheck | None, *, width: int) -> Iterator[Text]:
    kind = one_line(tensor.dtype, tensor.shape, {}) if tensor.dtype else f"{tensor.size} bytes"
    status = "" if check is None else check.status
    judged = f"{status}: {check.text}" if check is not None and _is_wrong(check) else status
    name = tensor.label.replace("input", "in").replace("output", "out").replace("unknown", "arg")
    line = f"{kind}  {tensor.address or ''}  {judged}".rstrip()
    yield from folded(f"  {name:<6}  ", line, width=width)


def _is_wrong(check: ToldCheck | None) -> bool:
    return check is not None and check.status in _TOLD


_TOLD = frozenset(
    ("null", "freed", "out of range", "not allocated", "unaligned", "overlapping", "unreadable")
)


def _messages(finding: Finding, *, width: int) -> Iterator[Text]:
    for message in dict.fromkeys(core.message for core in _cores(finding) if core.message):
        yield from folded("  says    ", message, width=width)


def _called(call: CallPart) -> str:
    """The recorded call that launched the kernel."""
    return f"{call.text}{'' if call.certain else ' (the first that may have failed)'}"


def _place_lines(place: PlacePart, *, width: int) -> Iterator[Text]:
    symbol = f"{named}  " if (named := _symbol(place)) else ""
    python = f"  from {place.python}" if place.python else ""
    where = f"offset {place.offset}  {symbol}{place.source or ''}{python}".rstrip()
    yield from folded("  pc      ", where, width=width)
    if place.text:
        yield from folded("          ", place.text, width=width)


def _symbol(place: ToldPlace) -> str:
    if not place.symbol or place.symbol_offset is None:
        return ""
    return f"{place.symbol}+{place.symbol_offset:#x}"


def core_list(finding: Finding) -> str:
    """`8 vector cores 14-21`, `core 0`, both where a mixed kernel failed on both, empty without
    cores.
    """
    numbers: dict[str, set[int]] = {"core": set(), "vector core": set()}
    for core in _cores(finding):
        if core.core is not None:
            numbers["vector core" if "vec" in (core.kind or "") else "core"].add(core.core)
    return ", ".join(
        f"{word if len(members) == 1 else f'{len(members)} {word}s'} {', '.join(spans(members))}"
        for word, members in numbers.items()
        if members
    )


def info_text(finding: Finding) -> str:
    """info.txt of one error: everything known, in the sections msaicerr writes, and a seventh with
    the verdict.
    """
    sections = (
        ("1. Basic information", _basic(finding)),
        ("2. AI Core DFX Register", _registers(finding)),
        ("3. Operator Error Line Number", _line_number(finding)),
        ("4. Input/Output Memory", _memory(finding)),
        ("5. Dump File Parsing", _dump(finding)),
        ("6. Single-Operator result", _case(finding)),
        ("7. Verdict", _verdict(finding)),
    )
    rows: list[str] = []
    for title, body in sections:
        rows += [f"***********************{title}***********************", *map(_clean, body), ""]
    return "\n".join(rows)


def sections_of(finding: Finding) -> list[tuple[str, list[str]]]:
    """The sections of info.txt as titles and lines."""
    sections: list[tuple[str, list[str]]] = []
    for text in info_text(finding).splitlines():
        if text.startswith("***"):
            sections.append((text.strip("*"), []))
        elif sections and text:
            sections[-1][1].append(text)
    return sections


def _clean(text: str) -> str:
    return "\\n".join(printable(line) for line in text.split("\n"))


def _row(name: str, value: Any) -> str:
    return f"{name:<24}: {value}"


def _basic(finding: Finding) -> Iterator[str]:
    error = _error(finding)
    yield _row("error time", error.time or "not in the log")
    yield _row("operator", finding.op or "not known")
    yield _row("node name", error.node or "not known")
    for name in _PLACE:
        if getattr(error, name) not in (None, ""):
            yield _row(name.replace("_", " "), getattr(error, name))
    yield _row("cores", core_list(finding) or "not in the log")
    yield _row("kernel name", error.kernel or "not in the log")
    yield _row("function name", error.function or "not in the log")
    for name, value in error.failure.items():
        yield _row(f"  {name}", value)
    for code in (part(finding, ReturnedPart) or ReturnedPart()).codes:
        words = (code.code, code.name, code.text, code.inner)
        yield _row("return code", " ".join(word for word in words if word))
    node, kernel = part(finding, NodePart), part(finding, KernelPart)
    if node is not None:
        yield from _node(node)
    if kernel is not None:
        yield from _kernel(kernel)
    for item in error.dump_files:
        yield _row(f"written, {item.what}", item.path)
    for note in error.notes:
        yield _row(f"log, {note.topic}", note.text)
    for warning in error.warnings:
        yield _row("warning", warning)
    for file in error.files:
        yield _row("log file", file)


_PLACE = (
    "device",
    "stream",
    "task",
    "context",
    "thread",
    "pid",
    "process",
    "generation",
    "soc",
    "tiling_key",
)


def _node(node: NodePart) -> Iterator[str]:
    yield _row("graph", node.file)
    yield _row("node type", node.type)
    if node.original:
        yield _row("original operators", ", ".join(node.original))
    for side, descs in (("input", node.inputs), ("output", node.outputs)):
        for slot, desc in enumerate(descs):
            yield _row(f"  {side} {slot}", _described(desc))
    for made in node.producers:
        original = f" from {', '.join(made.original)}" if made.original else ""
        yield _row(
            f"  input {made.slot} comes from",
            f"{made.name}:{made.index} ({made.type or 'type not in this graph'}){original}",
        )
    for name, value in node.attributes.items():
        yield _row(f"  attribute {name}", value)


def _described(desc: TensorDesc) -> str:
    shape = list(desc.shape) if desc.shape is not None else "?"
    origin = (
        f", origin {desc.origin_format} {list(desc.origin_shape)}"
        if desc.origin_shape is not None
        else ""
    )
    return f"{desc.dtype or '?'} {desc.format or '?'} {shape}{origin}"


def _kernel(kernel: KernelPart) -> Iterator[str]:
    yield _row("kernel json", kernel.file)
    for name, value in kernel.document.items():
        if name != "supportInfo":
            yield _row(f"  {name}", value)
    support = kernel.document.get("supportInfo")
    for name, value in support.items() if isinstance(support, dict) else ():
        yield _row(f"  supportInfo.{name}", value)
    for path in kernel.objects:
        yield _row("kernel binary", path)


def _registers(finding: Finding) -> Iterator[str]:
    for core in _cores(finding):
        on_chip = ", ".join(
            f"{name} {number}"
            for name in ("device", "die", "serial")
            if (number := getattr(core, name)) is not None
        )
        codes = f" ({', '.join(core.codes)})" if len(core.codes) > 1 else ""
        yield (
            f"core {core.core} ({core.kind or 'AI Core'}; {on_chip}): error code "
            f"{core.code or '0'}{codes}"
        )
        for bit in core.bits:
            yield f"  bit {bit.number} {bit.name}: {bit.meaning}"
            yield f"    likely: {bit.cause}"
        if not core.bits:
            yield "  no bit: timeout or trap"
        if core.message:
            yield f"  the runtime says: {core.message}"
        for name, value in core.registers.items():
            yield f"  {name:<22}: {_joined(value)}"
        for unit, fields in core.decoded.items():
            values = ", ".join(f"{name} {_joined(value)}" for name, value in fields.items())
            yield f"  {unit} info decoded{'':<{max(1, 9 - len(unit))}}: {values}"
        yield from (f"  {name:<22}: {_joined(values)}" for name, values in core.extend.items())


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _line_number(finding: Finding) -> Iterator[str]:
    for core in _cores(finding):
        counter = core.pc
        if counter is None:
            continue
        fixed = (
            f"fixed {counter.fixed} by the {counter.method}"
            if counter.fixed
            else "not fixed: these registers do not hold it"
        )
        yield f"core {core.core}: start {counter.start}, current {counter.current}, {fixed}"
        yield (
            f"  offset {counter.offset or '?'} (current {counter.current_offset or '?'}, "
            f"heuristic {counter.heuristic_offset or '?'})"
        )
    source_place = part(finding, PlacePart)
    if source_place is None:
        yield "the logs hold no program counter"
        return
    for label, value in (
        ("by the registers", source_place),
        ("by the heuristic", source_place.heuristic),
    ):
        if value is not None:
            yield (
                f"{label}: offset {value.offset}, {_symbol(value) or 'symbol not known'}, "
                f"{value.source or 'line not known'}"
            )
            for name in ("text", "python", "object", "hint"):
                if getattr(value, name):
                    yield f"  {name}: {getattr(value, name)}"
            yield from (f"    {text}" for text in value.instructions)


def _memory(finding: Finding) -> Iterator[str]:
    arguments = part(finding, ArgumentsPart) or ArgumentsPart()
    addresses = part(finding, AddressesPart) or AddressesPart()
    yield from map(_held, arguments.tensors)
    for check in addresses.checks:
        yield f"  check {check.tensor} {check.address}: {check.status}; {check.text}"
    for owner in addresses.owners:
        yield f"  {owner.source} {owner.address}: {owner.text}"
    known = addresses.allocations
    yield f"allocations in the log before the error: {'none listed' if known is None else known}"
    for when, words in (("before", arguments.words_before), ("after", arguments.words_after)):
        for at in range(0, len(words), 20):
            yield (
                f"args {when} execution ({at} to {min(at + 20, len(words))}): "
                f"{', '.join(words[at : at + 20])}"
            )
    tiling = part(finding, TilingPart) or TilingPart()
    yield _row("tiling key", tiling.key or "not in the log")
    yield _row("block dim", arguments.block_dim or "not in the log")
    if tiling.held:
        size = f" of {tiling.size}" if tiling.size is not None else ""
        cut = "; the rest was cut" if tiling.cut else ""
        yield _row("tiling data", f"{tiling.held}{size} bytes, from {tiling.source}{cut}")
        yield _row("  bytes", tiling.bytes)
    for name, value in _error(finding).description.items():
        yield _row(f"  {name}", value)


def _held(tensor: ToldTensor) -> str:
    shape = list(tensor.shape) if tensor.shape is not None else "shape ?"
    name = f" {tensor.name}" if tensor.name else ""
    logged = f" (log: {tensor.said_address})" if tensor.said_address != tensor.address else ""
    size = tensor.size if tensor.size is not None else "?"
    return (
        f"{tensor.label}{name}: {tensor.dtype or 'dtype ?'} {tensor.format or ''} {shape}"
        f" address {tensor.address or '?'}{logged} size {size}"
    )


def _dump(finding: Finding) -> Iterator[str]:
    core, dump = part(finding, CoreFilePart), part(finding, DumpPart)
    if core is not None:
        yield from _core_file(core)
    if dump is None:
        how = next((item.how for item in _missing(finding) if item.what == "exception dump"), None)
        yield "no exception dump" if how is None else f"no exception dump: {how}"
        return
    yield _row("file", dump.file)
    for tensor in dump.tensors:
        described = one_line(tensor.dtype or "bytes", tensor.shape, tensor.statistics, full=True)
        marks = [*tensor.troubles]
        marks += [f"{tensor.denormal} denormal"] if tensor.denormal else []
        marks += ["all zero"] if tensor.all_zero and not tensor.zeroed else []
        yield "; ".join([f"{tensor.label}: {described}", *marks])
    yield from dump.problems
    reference = part(finding, ReferencePart)
    if reference is not None:
        yield _row("CPU reference", reference.text)


def _core_file(core: CoreFilePart) -> Iterator[str]:
    yield _row("core file", core.file)
    for block in core.blocks:
        failed = "" if block.copied else ", not copied"
        yield (f"  global memory {block.address}: {block.size} bytes, kind {block.type}{failed}")
    for local in core.locals:
        yield f"  {local.core} {local.memory}: {local.size} bytes"
    for name, values in core.registers.items():
        words = ", ".join(f"{address} {value}" for address, value in values.items())
        yield f"  {name} registers: {words}"


def _case(finding: Finding) -> Iterator[str]:
    call, case = part(finding, CallPart), part(finding, WrittenCase)
    if call is not None:
        yield _row("call", _called(call))
    if case is not None:
        yield _row("case", case.folder)
        yield from (f"  lacks {text}" for text in case.lacks)
        if case.status:
            where = f"{case.status} ({case.device or 'no device'}): {case.reason}"
            yield _row("  tried here", where)
    result = _error(finding).case_result
    yield (
        f"the single-operator case: {result}"
        if result
        else "not run yet; opscope aicore … --case-result reproduced|not-reproduced|PLOG_DIR takes "
        "its outcome"
    )


def _verdict(finding: Finding) -> Iterator[str]:
    for verdict in parts(finding, Verdict):
        code = f", code {verdict.code}" if verdict.code else ""
        yield f"{verdict.cause} [{verdict.confidence}{code}]: {verdict.text}"
        yield from (f"  because: {text}" for text in verdict.grounds)
        yield from (f"  next: {text}" for text in verdict.advice)
    for item in _missing(finding):
        yield f"missing: {item.what} ({item.text}); {item.how}"
