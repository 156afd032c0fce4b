# SPDX-License-Identifier: Apache-2.0
"""Rows as an Excel workbook, written as it is read: a zip of XML (ECMA-376, SpreadsheetML), each
row once, nothing kept in memory.

Text is written as inline strings, which no spreadsheet evaluates, and a text that begins like a
formula gets an apostrophe all the
same: it may be saved as CSV later. Numbers that are not finite are text, since the format has none.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from opscope.report.table import harmless

MOST_ROWS = 1_048_500  # of one sheet; Excel takes 1,048,576
MOST_TEXT = 32_767  # characters of one cell
PLAIN, BOLD, RED, YELLOW, GREY = range(5)  # styles of a row
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_FILLS = ("FFFFC7CE", "FFFFEB9C", "FFE7E6E6")  # of RED, YELLOW, GREY
_STYLES = (
    f'{_HEAD}<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name '
    'val="Calibri"/></font><font><b/><sz val="11"/>'
    '<name val="Calibri"/></font></fonts><fills count="5"><fill><patternFill '
    'patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill>'
    + "".join(
        f'<fill><patternFill patternType="solid"><fgColor rgb="{colour}"/></patternFill></fill>'
        for colour in _FILLS
    )
    + '</fills><borders count="1"><border/></borders><cellStyleXfs '
    'count="1"><xf/></cellStyleXfs><cellXfs count="5"><xf xfId="0"/>'
    '<xf fontId="1" xfId="0" applyFont="1"/>'
    + "".join(f'<xf fillId="{number}" xfId="0" applyFill="1"/>' for number in (2, 3, 4))
    + '</cellXfs><cellStyles count="1"><cellStyle name="Normal" xfId="0" '
    'builtinId="0"/></cellStyles></styleSheet>'
)


def write_workbook(
    path: Path,
    columns: Sequence[str],
    rows: Iterable[tuple[int, Sequence[Any]]],
    *,
    most: int = MOST_ROWS,
) -> int:
    """Writes rows, each with its style, into as many sheets as they need; answers the number of
    sheets.
    """
    remaining, sheets = iter(rows), 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        part = list(islice(remaining, 1))
        while part or not sheets:
            sheets += 1
            with archive.open(f"xl/worksheets/sheet{sheets}.xml", "w", force_zip64=True) as file:
                for text in _sheet(columns, _taken(part, remaining, most)):
                    file.write(text.encode())
            part = list(islice(remaining, 1))
        for name, text in _frame(sheets):
            archive.writestr(name, text)
    return sheets


def _taken(
    first: list[tuple[int, Sequence[Any]]], more: Iterator[tuple[int, Sequence[Any]]], most: int
) -> Iterator[tuple[int, Sequence[Any]]]:
    yield from first
    yield from islice(more, most - 1)


def _sheet(columns: Sequence[str], rows: Iterable[tuple[int, Sequence[Any]]]) -> Iterator[str]:
    yield f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    yield (
        '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" '
        'state="frozen"/></sheetView></sheetViews><sheetData>'
    )
    yield _row(1, BOLD, columns)
    count = 1
    for count, (style, cells) in enumerate(rows, 2):
        yield _row(count, style, cells)
    yield f'</sheetData><autoFilter ref="A1:{_letters(len(columns))}{count}"/></worksheet>'


def _letters(column: int) -> str:
    """1 is A, 27 is AA."""
    letters = ""
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _row(number: int, style: int, cells: Sequence[Any]) -> str:
    return f'<row r="{number}">{"".join(_cell(cell, style) for cell in cells)}</row>'


def _cell(value: Any, style: int) -> str:
    mark = f' s="{style}"' if style else ""
    if value is None:
        return f"<c{mark}/>"
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return f"<c{mark}><v>{value!r}</v></c>"
    text = harmless(value) if isinstance(value, str) else str(value)
    text = escape(_NO_XML.sub("\ufffd", text[:MOST_TEXT]), quote=False)
    return f'<c{mark} t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'


def _frame(sheets: int) -> Iterator[tuple[str, str]]:
    """The parts of the package around the sheets."""
    numbers = range(1, sheets + 1)
    parts = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_TYPE}.worksheet+xml"/>'
        for n in numbers
    )
    types = (
        f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.'
        'relationships+xml"/><Default Extension="xml" '
        'ContentType="application/xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{_TYPE}.sheet.main+xml"/><Override PartName="/xl/styles.xml" '
        f'ContentType="{_TYPE}.styles+xml"/>{parts}</Types>'
    )
    yield "[Content_Types].xml", types
    book = f'<Relationship Id="rId1" Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/>'
    yield (
        "_rels/.rels",
        f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">{book}</Relationships>',
    )
    names = "".join(f'<sheet name="Sheet{n}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
    yield (
        "xl/workbook.xml",
        (
            f'{_HEAD}<workbook xmlns="{_MAIN}" '
            f'xmlns:r="{_RELATIONS}"><sheets>{names}</sheets></workbook>'
        ),
    )
    targets = "".join(
        f'<Relationship Id="rId{n}" Type="{_RELATIONS}/worksheet" '
        f'Target="worksheets/sheet{n}.xml"/>'
        for n in numbers
    )
    styles = f'<Relationship Id="rId{sheets + 1}" Type="{_RELATIONS}/styles" Target="styles.xml"/>'
    yield (
        "xl/_rels/workbook.xml.rels",
        f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">{targets}{styles}</Relationships>',
    )
    yield "xl/styles.xml", _STYLES
