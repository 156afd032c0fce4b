# SPDX-License-Identifier: Apache-2.0
"""AI Core errors as text: a short verdict for the terminal, and info.txt with the sections
msaicerr's users know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.text import Text

from opscope.report.console import folded, line, make_console, print_lines
from opscope.report.oneline import one_line
from opscope.run.finding import Document, Finding
from opscope.run.printable import printable

_SHOWN_TENSORS = 8
_SHOWN_MISSING = 4
_SHOWN_KINDS = 20
_SHOWN_AGAIN = 6
_STYLES = {"proven": "bold red", "likely": "red", "suspected": "yellow"}
Part = Mapping[str, Any]


def part(finding: Finding, name: str) -> Part:
    """One part of a finding's evidence, empty where it has none."""
    return next((record for record in finding.evidence if record.get("part") == name), {})


def parts(finding: Finding, name: str) -> list[Part]:
    """All parts of that name."""
    return [record for record in finding.evidence if record.get("part") == name]


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
            yield from folded(f"{code['code']}  ", code["meaning"], width=width)
    for warning in document.summary.get("warnings", ()):
        yield from folded("warning  ", str(warning), width=width, style="yellow")
    if written is not None:
        yield line(("written  ", "bold"), written)


def _kinds(findings: Sequence[Finding]) -> Iterator[tuple[int, Finding, list[tuple[int, Finding]]]]:
    """Number and finding of each different error, with those that repeat it; of very many only the
    first ones.
    """
    found: dict[Any, list[tuple[int, Finding]]] = {}
    for number, finding in enumerate(findings, 1):
        error = part(finding, "error")
        key = (
            finding.op,
            finding.call,
            error.get("function"),
            error.get("device"),
            finding.reasons,
            part(finding, "verdict").get("text"),
        )
        found.setdefault(key, []).append((number, finding))
    kinds = list(found.values())
    for (number, finding), *again in kinds[:_SHOWN_KINDS]:
        yield number, finding, again
    if kinds[_SHOWN_KINDS:]:
        (number, finding), *_ = kinds[_SHOWN_KINDS]
        yield (
            number,
            finding,
            [one for kind in kinds[_SHOWN_KINDS:] for one in kind if one[0] != number],
        )


def _again(again: Sequence[tuple[int, Finding]]) -> str:
    times = [time for _, finding in again if (time := part(finding, "error").get("time"))]
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
    error = part(finding, "error")
    head = f"AI Core error {number} of {count}  " if count > 1 else "AI Core error  "
    known = [
        f"{name} {error[name]}"
        for name in ("stream", "task", "context")
        if error.get(name) is not None
    ]
    task = ", ".join([*_device(finding), *known])
    yield from folded(
        head,
        f"{finding.op or 'operator not known'}  {finding.call or ''}".rstrip(),
        width=width,
        style="bold red",
    )
    facts = [
        text
        for text in (task, core_list(finding), error.get("generation"), error.get("time"))
        if text
    ]
    yield from folded("  where   ", "; ".join(facts), width=width)
    if error.get("function"):
        yield from folded("  kernel  ", str(error["function"]), width=width)
    for reason in finding.reasons[:4]:
        yield from folded(f"  {code_of(finding, reason) or 'code'}  ", reason, width=width)
    yield from _messages(finding, width=width)
    yield from _place_lines(finding, width=width)
    if part(finding, "call"):
        yield from folded("  call    ", _called(finding), width=width)
    yield from _argument_lines(finding, width=width)
    for tensor in part(finding, "dump").get("tensors", ()):
        if tensor["troubles"]:
            yield from folded(
                "  dump    ", f"{tensor['label']}: {', '.join(tensor['troubles'])}", width=width
            )
    if part(finding, "reference").get("status") in ("agrees", "differs"):
        yield from folded("  cpu     ", part(finding, "reference")["text"], width=width)
    for place, verdict in enumerate(parts(finding, "verdict")):
        tag = "verdict  " if place == 0 else "or       "
        yield from folded(
            tag,
            f"{verdict['text']} [{verdict['confidence']}]",
            width=width,
            style=_STYLES.get(verdict["confidence"], ""),
        )
        if place == 0:
            for advice in verdict["advice"]:
                yield from folded("  next   ", advice, width=width)
    if part(finding, "case"):
        case = part(finding, "case")
        said = f": {case['status']}, {case['reason']}" if case["status"] else ""
        yield from folded("case     ", f"{case['folder']}{said}", width=width)
    for item in part(finding, "missing").get("items", ())[:_SHOWN_MISSING]:
        yield from folded(
            "missing  ", f"{item['what']}: {item['how']}", width=width, style="yellow"
        )


def _device(finding: Finding) -> Iterator[str]:
    """`device 3`; `chip 4, die 1` of a chip with two devices whose own numbers no line tells."""
    error = part(finding, "error")
    device, die = (
        error.get("device"),
        next((core["die"] for core in part(finding, "cores").get("cores", ())), None),
    )
    if device is not None:
        own = not die or "device_id" in error["failure"] or error.get("task") is not None
        yield f"device {device}" if own else f"chip {device}, die {die}"


def code_of(finding: Finding, reason: str) -> str | None:
    """The error code that a reason was read from: that of the first core with its bit; all words
    where the first is zero.
    """
    name = reason.partition(":")[0]
    cores = part(finding, "cores").get("cores", ())
    found = next((core for core in cores if any(bit["name"] == name for bit in core["bits"])), None)
    if found is None:
        return finding.status
    later = found["code"] in ("0", "0x0") and any(code != "0x0" for code in found["codes"])
    return ", ".join(found["codes"]) if later else found["code"]


def _argument_lines(finding: Finding, *, width: int) -> Iterator[Text]:
    """Inputs and outputs with what was found out about their addresses; the others only where
    something is wrong.
    """
    checks = {check["tensor"]: check for check in part(finding, "addresses").get("checks", ())}
    shown = hidden = 0
    for tensor in part(finding, "arguments").get("tensors", ()):
        check = checks.get(tensor["label"], {})
        bad = check.get("status") in _TOLD
        if not bad and (
            tensor["io"] not in ("input", "output", "unknown") or shown >= _SHOWN_TENSORS
        ):
            hidden += tensor["io"] in ("input", "output", "unknown")
            continue
        shown += 1
        kind = (
            one_line(tensor["dtype"], tensor["shape"], {})
            if tensor["dtype"]
            else f"{tensor['size']} bytes"
        )
        said = f"{check.get('status', '')}: {check['text']}" if bad else check.get("status", "")
        tag = (
            "  "
            f"{tensor['label'].replace('input', 'in').replace('output', 'out').replace('unknown', 'arg'):<6} "  # noqa: E501
            " "
        )
        yield from folded(tag, f"{kind}  {tensor['address'] or ''}  {said}".rstrip(), width=width)
    if hidden:
        yield line(f"          {hidden} more, with nothing wrong: info.txt (-o FOLDER)")


_TOLD = frozenset(
    ("null", "freed", "out of range", "not allocated", "unaligned", "overlapping", "unreadable")
)


def _messages(finding: Finding, *, width: int) -> Iterator[Text]:
    for message in dict.fromkeys(
        core["message"] for core in part(finding, "cores").get("cores", ()) if core["message"]
    ):
        yield from folded("  says    ", message, width=width)


def _called(finding: Finding) -> str:
    """The recorded call that launched the kernel."""
    call = part(finding, "call")
    return f"{call['text']}{'' if call['certain'] else ' (the first that may have failed)'}"


def _place_lines(finding: Finding, *, width: int) -> Iterator[Text]:
    place = part(finding, "place")
    if not place:
        return
    symbol = (
        f"{place['symbol']}+{place['symbol_offset']:#x}  "
        if place.get("symbol") and place.get("symbol_offset") is not None
        else ""
    )
    source = place.get("source") or ""
    python = f"  from {place['python']}" if place.get("python") else ""
    yield from folded(
        "  pc      ", f"offset {place['offset']}  {symbol}{source}{python}".rstrip(), width=width
    )
    if place.get("text"):
        yield from folded("          ", place["text"], width=width)


def core_list(finding: Finding) -> str:
    """`8 vector cores 14-21`, `core 0`, both where a mixed kernel failed on both, empty without
    cores.
    """
    numbers: dict[str, set[int]] = {"core": set(), "vector core": set()}
    for core in part(finding, "cores").get("cores", ()):
        if core["core"] is not None:
            numbers["vector core" if "vec" in (core["kind"] or "") else "core"].add(core["core"])
    said = (
        f"{word} {found[0]}" if len(found) == 1 else f"{len(found)} {word}s {spans(found)}"
        for word, found in _sorted(numbers)
    )
    return ", ".join(said)


def _sorted(numbers: dict[str, set[int]]) -> Iterator[tuple[str, list[int]]]:
    return ((word, sorted(found)) for word, found in numbers.items() if found)


def spans(numbers: Sequence[int]) -> str:
    """`0, 2, 14-21` of sorted numbers."""
    starts = [numbers[0], *(second for first, second in pairwise(numbers) if second != first + 1)]
    ends = [*(first for first, second in pairwise(numbers) if second != first + 1), numbers[-1]]
    return ", ".join(
        str(start) if start == end else f"{start}-{end}"
        for start, end in zip(starts, ends, strict=True)
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
    found: list[tuple[str, list[str]]] = []
    for text in info_text(finding).splitlines():
        if text.startswith("***"):
            found.append((text.strip("*"), []))
        elif found and text:
            found[-1][1].append(text)
    return found


def _clean(text: str) -> str:
    return "\\n".join(printable(one) for one in text.split("\n"))


def _row(name: str, value: Any) -> str:
    return f"{name:<24}: {value}"


def _basic(finding: Finding) -> Iterator[str]:
    error = part(finding, "error")
    yield _row("error time", error.get("time") or "not in the log")
    yield _row("operator", finding.op or "not known")
    yield _row("node name", error.get("node") or "not known")
    for name in (
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
    ):
        if error.get(name) not in (None, ""):
            yield _row(name.replace("_", " "), error[name])
    yield _row("cores", core_list(finding) or "not in the log")
    yield _row("kernel name", error.get("kernel") or "not in the log")
    yield _row("function name", error.get("function") or "not in the log")
    for name, value in error.get("failure", {}).items():
        yield _row(f"  {name}", value)
    for code in part(finding, "returned").get("codes", ()):
        yield _row(
            "return code",
            " ".join(str(code[key]) for key in ("code", "name", "text", "inner") if code.get(key)),
        )
    yield from _node(finding)
    yield from _kernel(finding)
    for item in error.get("dump_files", ()):
        yield _row(f"written, {item['what']}", item["path"])
    for note in error.get("notes", ()):
        yield _row(f"log, {note['topic']}", note["text"])
    for warning in error.get("warnings", ()):
        yield _row("warning", warning)
    for file in error.get("files", ()):
        yield _row("log file", file)


def _node(finding: Finding) -> Iterator[str]:
    node = part(finding, "node")
    if not node:
        return
    yield _row("graph", node["file"])
    yield _row("node type", node["type"])
    if node["original"]:
        yield _row("original operators", ", ".join(node["original"]))
    for side in ("inputs", "outputs"):
        for place, desc in enumerate(node[side]):
            yield _row(f"  {side[:-1]} {place}", _described(desc))
    for made in node["producers"]:
        original = f" from {', '.join(made['original'])}" if made["original"] else ""
        yield _row(
            f"  input {made['slot']} comes from",
            f"{made['name']}:{made['index']} "
            f"({made['type'] or 'type not in this graph'}){original}",
        )
    for name, value in node["attributes"].items():
        yield _row(f"  attribute {name}", value)


def _described(desc: Part) -> str:
    shape = list(desc["shape"]) if desc.get("shape") is not None else "?"
    origin = (
        f", origin {desc['origin_format']} {list(desc['origin_shape'])}"
        if desc.get("origin_shape") is not None
        else ""
    )
    return f"{desc.get('dtype') or '?'} {desc.get('format') or '?'} {shape}{origin}"


def _kernel(finding: Finding) -> Iterator[str]:
    kernel = part(finding, "kernel")
    if not kernel:
        return
    yield _row("kernel json", kernel["file"])
    for name, value in kernel["document"].items():
        if name != "supportInfo":
            yield _row(f"  {name}", value)
    for name, value in (
        (kernel["document"].get("supportInfo") or {}).items()
        if isinstance(kernel["document"].get("supportInfo"), dict)
        else ()
    ):
        yield _row(f"  supportInfo.{name}", value)
    for path in kernel["objects"]:
        yield _row("kernel binary", path)


def _registers(finding: Finding) -> Iterator[str]:
    for core in part(finding, "cores").get("cores", ()):
        place = ", ".join(
            f"{name} {core[name]}" for name in ("device", "die", "serial") if core[name] is not None
        )
        yield (
            f"core {core['core']} ({core['kind'] or 'AI Core'}; {place}): error code "
            f"{core['code'] or '0'}"
            + (f" ({', '.join(core['codes'])})" if len(core["codes"]) > 1 else "")
        )
        for bit in core["bits"]:
            yield f"  bit {bit['number']} {bit['name']}: {bit['meaning']}"
            yield f"    likely: {bit['cause']}"
        if not core["bits"]:
            yield "  no bit: timeout or trap"
        if core["message"]:
            yield f"  the runtime says: {core['message']}"
        for name, value in core["registers"].items():
            yield f"  {name:<22}: {_joined(value)}"
        for unit, fields in core["decoded"].items():
            said = ", ".join(f"{name} {_joined(value)}" for name, value in fields.items())
            yield f"  {unit} info decoded{'':<{max(1, 9 - len(unit))}}: {said}"
        for name, value in core["extend"].items():
            yield f"  {name:<22}: {_joined(value)}"


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _line_number(finding: Finding) -> Iterator[str]:
    for core in part(finding, "cores").get("cores", ()):
        counter = core["pc"]
        if counter is None:
            continue
        fixed = (
            f"fixed {counter['fixed']} by the {counter['method']}"
            if counter["fixed"]
            else "not fixed: these registers do not hold it"
        )
        yield f"core {core['core']}: start {counter['start']}, current {counter['current']}, {fixed}"  # noqa: E501
        offsets = ", ".join(
            f"{name} {counter[key] or '?'}"
            for name, key in (("current", "current_offset"), ("heuristic", "heuristic_offset"))
        )
        yield f"  offset {counter['offset'] or '?'} ({offsets})"
    place = part(finding, "place")
    if not place:
        yield "the logs hold no program counter"
        return
    for label, one in (("by the registers", place), ("by the heuristic", place.get("heuristic"))):
        if one:
            symbol = (
                f"{one['symbol']}+{one['symbol_offset']:#x}"
                if one.get("symbol") and one.get("symbol_offset") is not None
                else "symbol not known"
            )
            yield (
                f"{label}: offset {one['offset']}, {symbol}, "
                f"{one.get('source') or 'line not known'}"
            )
            for name in ("text", "python", "object", "hint"):
                if one.get(name):
                    yield f"  {name}: {one[name]}"
            yield from (f"    {text}" for text in one.get("instructions", ()))


def _memory(finding: Finding) -> Iterator[str]:
    arguments, addresses = part(finding, "arguments"), part(finding, "addresses")
    for tensor in arguments.get("tensors", ()):
        shape = list(tensor["shape"]) if tensor["shape"] is not None else "shape ?"
        name = f" {tensor['name']}" if tensor["name"] else ""
        said = (
            f" (log: {tensor['said_address']})"
            if tensor["said_address"] != tensor["address"]
            else ""
        )
        yield (
            f"{tensor['label']}{name}: {tensor['dtype'] or 'dtype ?'} "
            f"{tensor['format'] or ''} {shape}"
            f" address {tensor['address'] or '?'}{said} size "
            f"{tensor['size'] if tensor['size'] is not None else '?'}"
        )
    for check in addresses.get("checks", ()):
        yield f"  check {check['tensor']} {check['address']}: {check['status']}; {check['text']}"
    for owner in addresses.get("owners", ()):
        yield f"  {owner['source']} {owner['address']}: {owner['text']}"
    known = addresses.get("allocations")
    yield f"allocations in the log before the error: {'none listed' if known is None else known}"
    for when in ("before", "after"):
        words = arguments.get(f"words_{when}", ())
        for at in range(0, len(words), 20):
            yield (
                f"args {when} execution ({at} to {min(at + 20, len(words))}): "
                f"{', '.join(words[at : at + 20])}"
            )
    tiling = part(finding, "tiling")
    yield _row("tiling key", tiling.get("key") or "not in the log")
    yield _row("block dim", arguments.get("block_dim") or "not in the log")
    if tiling.get("held"):
        size = f" of {tiling['size']}" if tiling["size"] is not None else ""
        yield _row(
            "tiling data",
            f"{tiling['held']}{size} bytes, from "
            f"{tiling['source']}{'; the rest was cut' if tiling['cut'] else ''}",
        )
        yield _row("  bytes", tiling["bytes"])
    for name, value in part(finding, "error").get("description", {}).items():
        yield _row(f"  {name}", value)


def _dump(finding: Finding) -> Iterator[str]:
    yield from _core_file(part(finding, "core file"))
    dump = part(finding, "dump")
    if not dump:
        item = next(
            (
                item
                for item in part(finding, "missing").get("items", ())
                if item["what"] == "exception dump"
            ),
            None,
        )
        yield f"no exception dump: {item['how']}" if item else "no exception dump"
        return
    yield _row("file", dump["file"])
    for tensor in dump["tensors"]:
        said = one_line(
            tensor["dtype"] or "bytes", tensor["shape"], tensor["statistics"], full=True
        )
        marks = [*tensor["troubles"]] + (
            [f"{tensor['denormal']} denormal"] if tensor["denormal"] else []
        )
        marks += ["all zero"] if tensor["all_zero"] and not tensor["zeroed"] else []
        yield f"{tensor['label']}: {said}{'; ' if marks else ''}{'; '.join(marks)}"
    yield from dump["problems"]
    if part(finding, "reference"):
        yield _row("CPU reference", part(finding, "reference")["text"])


def _core_file(core: Part) -> Iterator[str]:
    if not core:
        return
    yield _row("core file", core["file"])
    for block in core["blocks"]:
        failed = "" if block["copied"] else ", not copied"
        yield (
            f"  global memory {block['address']}: {block['size']} bytes, kind "
            f"{block['type']}{failed}"
        )
    for local in core["locals"]:
        yield f"  {local['core']} {local['memory']}: {local['size']} bytes"
    for name, values in core["registers"].items():
        yield (
            f"  {name} registers: "
            f"{', '.join(f'{address} {value}' for address, value in values.items())}"
        )


def _case(finding: Finding) -> Iterator[str]:
    if part(finding, "call"):
        yield _row("call", _called(finding))
    case = part(finding, "case")
    if case:
        yield _row("case", case["folder"])
        yield from (f"  lacks {text}" for text in case["lacks"])
        if case["status"]:
            yield _row(
                "  tried here",
                f"{case['status']} ({case['device'] or 'no device'}): {case['reason']}",
            )
    result = part(finding, "error").get("case_result")
    yield (
        f"the single-operator case: {result}"
        if result
        else "not run yet; opscope aicore … --case-result reproduced|not-reproduced|PLOG_DIR takes "
        "its outcome"
    )


def _verdict(finding: Finding) -> Iterator[str]:
    for verdict in parts(finding, "verdict"):
        code = f", code {verdict['code']}" if verdict["code"] else ""
        yield f"{verdict['cause']} [{verdict['confidence']}{code}]: {verdict['text']}"
        yield from (f"  because: {text}" for text in verdict["grounds"])
        yield from (f"  next: {text}" for text in verdict["advice"])
    for item in part(finding, "missing").get("items", ()):
        yield f"missing: {item['what']} ({item['text']}); {item['how']}"
