# SPDX-License-Identifier: Apache-2.0
"""From an offset in a kernel to a line of source: symbols and DWARF of the .o (pyelftools),
X.o.txt, the .cce and _loc.json.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError
from opscope.formats.bounded_json import load_json

_MAX = 1 << 30
_LONGEST = 200  # characters of an instruction's line that are kept


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One place of an instruction: its symbol, the line of the .cce or C++ source with its text,
    and the Python line behind it.

    instructions are its line of a disassembly and the ten before it, where such a text is there.
    """

    offset: int
    symbol: str | None = None
    symbol_offset: int | None = None
    source: str | None = None
    text: str | None = None
    python: str | None = None
    object: str | None = None
    hint: str | None = None
    instructions: tuple[str, ...] = ()


def locate(
    offset: int, *, objects: Sequence[Path], functions: Sequence[str], beside: Sequence[Path]
) -> Place:
    """The place of the instruction at this offset of a function; what cannot be found out stays
    None, hint says why.

    objects are binaries that may hold the function, beside are the .cce, _loc.json and .o.txt files
    of the kernel.
    """
    place = Place(offset=offset)
    for path in objects:
        try:
            place = _in_object(path, offset, functions)
        except ImportError:
            place = msgspec.structs.replace(
                place, hint="pip install opscope[ascend] reads the symbols and lines of the .o"
            )
            break
        except FormatError as error:
            place = msgspec.structs.replace(place, hint=str(error))
            continue
        if place.source is not None:
            break
    if place.source is None:
        place = _in_disassembly(place, beside)
    return _behind(place, beside)


def _in_object(path: Path, offset: int, functions: Sequence[str]) -> Place:
    """Symbol and line by the object's own tables; the function's start is added where the object
    has several functions.
    """
    from elftools.elf.elffile import ELFFile

    try:
        if path.stat().st_size > _MAX:
            raise FormatError(path, "is larger than 1 GiB")
        with path.open("rb") as stream:
            file = ELFFile(stream)
            symbols = _symbols(file)
            start = next(
                (
                    symbols[name][0]
                    for wanted in functions
                    for name in (f"{wanted}$local", wanted)
                    if name in symbols
                ),
                0,
            )
            name, inside = _covering(symbols, start + offset)
            source = _line(file, start + offset)
    except FormatError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(path, f"is no object that can be read: {reason}") from error
    hint = (
        None if source else f"{path.name} has no line table; op_debug_level 2 (or ccec_g) keeps one"
    )
    return Place(
        offset=offset, symbol=name, symbol_offset=inside, source=source, object=str(path), hint=hint
    )


def _symbols(file: Any) -> dict[str, tuple[int, int]]:
    """Functions of an object: name -> start and size."""
    functions: dict[str, tuple[int, int]] = {}
    for section in file.iter_sections():
        if section["sh_type"] not in ("SHT_SYMTAB", "SHT_DYNSYM"):
            continue
        for symbol in section.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol.name:
                functions.setdefault(symbol.name, (symbol["st_value"], symbol["st_size"]))
    return functions


def _covering(symbols: dict[str, tuple[int, int]], address: int) -> tuple[str | None, int | None]:
    """The innermost function that covers an address."""
    covering = [
        (size, name, start)
        for name, (start, size) in symbols.items()
        if start <= address < start + size
    ]
    if not covering:
        return None, None
    _, name, start = min(covering)
    return name, address - start


def _line(file: Any, address: int) -> str | None:
    """`file:line` of an address by the object's line programs."""
    if not file.has_dwarf_info():
        return None
    dwarf = _dwarf(file)
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        last = None
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            if (
                last is not None
                and last.address <= address < state.address
                and not last.end_sequence
            ):
                return _named(program, last.file, last.line)
            last = state
    return None


def _dwarf(file: Any) -> Any:
    """The debug sections; those of an unlinked object with their relocations, where its machine's
    are known.
    """
    from elftools.common.exceptions import ELFRelocationError

    if file["e_type"] == "ET_REL":
        with contextlib.suppress(ELFRelocationError):
            return file.get_dwarf_info(relocate_dwarf_sections=True)
    return file.get_dwarf_info(relocate_dwarf_sections=False)


def _named(program: Any, number: int, line: int) -> str:
    entries = program["file_entry"]
    number_in_table = number if program["version"] >= 5 else number - 1
    if not 0 <= number_in_table < len(entries):
        return f"?:{line}"
    entry = entries[number_in_table]
    folders = program["include_directory"]
    at = entry.dir_index if program["version"] >= 5 else entry.dir_index - 1
    name = entry.name.decode("utf-8", "replace")
    folder = folders[at].decode("utf-8", "replace") if 0 <= at < len(folders) else ""
    return f"{folder}/{name}:{line}" if folder and not name.startswith("/") else f"{name}:{line}"


def _in_disassembly(place: Place, beside: Sequence[Path]) -> Place:
    """The last `cce:LINE` before the instruction in the text of a disassembler (X.o.txt), as
    msaicerr reads it.
    """
    for path in beside:
        if not path.name.endswith(".o.txt"):
            continue
        lines = _lines(path)
        mark = re.compile(rf"^\s*0*{place.offset:x}:")
        at = next((number for number, text in enumerate(lines) if mark.match(text)), None)
        if at is None:
            continue
        line_mark = next(
            (
                match
                for text in reversed(lines[: at + 1])
                if (match := re.search(r"(\S*cce):(\d+)", text))
            ),
            None,
        )
        barrier = any("PIPE_ALL" in text for text in lines[max(0, at - 10) : at + 1])
        hint = (
            "a PIPE_ALL barrier lies before it: set_flag and wait_flag may not be paired"
            if barrier
            else place.hint
        )
        source = f"{line_mark[1]}:{line_mark[2]}" if line_mark else None
        before = tuple(text.rstrip()[:_LONGEST] for text in lines[max(0, at - 10) : at + 1])
        return msgspec.structs.replace(
            place, source=source, object=str(path), hint=hint, instructions=before
        )
    return place


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > _MAX:
            return []
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _behind(place: Place, beside: Sequence[Path]) -> Place:
    """Adds the text of the source line, and the Python line that a .cce line was generated from."""
    if place.source is None:
        return place
    name, _, line = place.source.rpartition(":")
    number = int(line) if line.isdecimal() and len(line) < 9 else 0
    base = Path(name).name
    text = next(
        (
            lines[number - 1].strip()
            for path in beside
            if path.name == base and 0 < number <= len(lines := _lines(path))
        ),
        None,
    )
    return msgspec.structs.replace(place, text=text, python=_python(base, number, beside))


def _python(cce: str, line: int, beside: Sequence[Path]) -> str | None:
    """`file.py:line` of a .cce line by X_loc.json: [{cce_full_path, cce_line2loc: [{cce_line, loc:
    [file, line]}]}].
    """
    for path in beside:
        if not path.name.endswith("_loc.json"):
            continue
        try:
            document = load_json(path)
        except FormatError:
            continue
        for entry in document if isinstance(document, list) else [document]:
            if (
                not isinstance(entry, dict)
                or Path(str(entry.get("cce_full_path", cce))).name != cce
            ):
                continue
            for one in entry.get("cce_line2loc", ()):
                if (
                    isinstance(one, dict)
                    and str(one.get("cce_line")) == str(line)
                    and isinstance(one.get("loc"), list)
                    and len(one["loc"]) > 1
                ):
                    return f"{one['loc'][0]}:{one['loc'][1]}"
    return None
