# SPDX-License-Identifier: Apache-2.0
"""Pictures for issues and papers: a finding with the path it took, a call with its tensors over the
steps. They are SVG; PNG is drawn of that by resvg (https://github.com/linebender/resvg), with the
letters of the machine's fonts.

What a run calls things is text in them and nothing else: no script, no link, no style of a run's
own.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import UnavailableError
from opscope.run.printable import number, printable
from opscope.view.layout import HEIGHT, WIDTH

MARGIN, LINE, LETTER = 24, 20, 7.3  # pixels: around everything, of a line, of a letter
SCALE = 2  # pixels of a PNG for each of the picture, as screens of today show them
LEAST = 720
CHART = (420, 170)
BARS = (420, 90)
COLOURS = ("#0b62a8", "#8a5a00", "#00664a", "#8f2a6b")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
MOST_LINES, MOST_TENSORS = 4, 12
# A shape beside the colour, for eyes that cannot tell colours apart.
KINDS = {
    "origin": ("#b3400a", "◆"),
    "unsound": ("#b3400a", "●"),
    "reached": ("#b3400a", "▶"),
    "hidden": ("#8f2a6b", "■"),
    "mask": ("#8a5a00", "▲"),
    "sound": ("#00664a", "○"),
    "unread": ("#5b6470", "·"),
}
_STYLE = """text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',
'Noto Sans Mono',monospace;fill:#1c2024}
.title{font-size:15px;font-weight:700}.soft{fill:#5b6470}.bold{font-weight:700}.bad{fill:#b3400a}"""


def finding_figure(finding: dict[str, Any], calls: dict[str, Any], names: dict[str, Any]) -> str:
    """A finding of the verdict's document: what it says, and the calls of its path."""
    graph = finding["graph"]
    width = max(LEAST, graph.width + 2 * MARGIN)
    texts = list(_said(finding))
    parts, y = _lines(texts, width)
    edges = [_edge(edge.points, y) for edge in graph.edges]
    nodes = [
        _node(node, calls.get(node.id), names.get(node.id), finding, y) for node in graph.nodes
    ]
    height = y + graph.height + MARGIN
    return _sheet([*parts, *edges, *nodes], width, height)


class Scale(msgspec.Struct, frozen=True):
    """Steps across, powers of ten down; top is where the chart begins."""

    first: int
    last: int
    low: int
    high: int
    top: int

    def at(self, step: float, value: float) -> tuple[float, float]:
        """Where a value above 0 of a step stands, in pixels."""
        x = (step - self.first) / ((self.last - self.first) or 1) * CHART[0]
        y = (self.high - math.log10(value)) / (self.high - self.low) * CHART[1]
        return round(MARGIN + 46 + x, 1), round(self.top + y, 1)


def verdict_figure(verdict: dict[str, Any], calls: dict[str, Any], names: dict[str, Any]) -> str:
    """The first finding of a verdict's document; one line where there is none."""
    if verdict["findings"]:
        return finding_figure(verdict["findings"][0], calls, names)
    words = "nothing wrong was found" + ("" if verdict["complete"] else ", the run is incomplete")
    parts, height = _lines([("title", words)], LEAST)
    return _sheet(parts, LEAST, height + MARGIN)


def call_figure(call: dict[str, Any]) -> str:
    """A call's document: its tensors, their largest magnitude over the steps, and how values that
    were kept are spread.
    """
    texts = [("title", call["name"]), ("soft", f"{call['op']}  step {call['step']}")]
    if call.get("source"):
        texts.append(("soft", call["source"]))
    texts += [
        ("", f"{tensor['io']:<6} {tensor['slot']:<3} {tensor['line']}")
        for tensor in call["tensors"][:MOST_TENSORS]
    ]
    if len(call["tensors"]) > MOST_TENSORS:
        texts.append(("soft", f"and {len(call['tensors']) - MOST_TENSORS} tensors more"))
    parts, y = _lines(texts, LEAST)
    lines = [tensor for tensor in call["tensors"] if tensor.get("series")][:MOST_LINES]
    if lines:
        parts += _chart(lines, y)
        y += CHART[1] + 3 * LINE
    for tensor in call["tensors"]:
        picture = tensor.get("picture")
        if picture and picture.get("counts"):
            parts += _bars(f"{tensor['io']} {tensor['slot']}", picture, y)
            y += BARS[1] + 3 * LINE
    return _sheet(parts, LEAST, y + MARGIN)


def place_in_path(key: str, call: dict[str, Any] | None, finding: dict[str, Any]) -> str:
    """What a call of a path is: where it began, what it spread to, what hid it, what was sound."""
    if key in (finding["id"], finding["hider"]):
        return "origin" if key == finding["id"] else "hidden"
    if key in finding["path"]:
        evidence = finding["evidence"][0] if finding["evidence"] else {}
        return "reached" if key == finding["path"][-1] and evidence.get("reached") else "unsound"
    tensors = call["tensors"] if call is not None else ()
    stats = [each["stats"] or {} for each in tensors if each["io"] == "output"]
    if not any("size" in each for each in stats):
        return "unread"
    if any(each.get("nan") or each.get("pos_inf") for each in stats):
        return "unsound"
    return "mask" if any(each.get("neg_inf") for each in stats) else "sound"


def _said(finding: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Class and text of each line above the path."""
    yield "title", f"{finding['words']}  step {finding['step']}  {finding['op'] or ''}"
    where = (finding["phase"], finding["module"] or "<root>", finding["confidence"])
    yield "soft", "  ".join(word for word in where if word)
    if finding["source"]:
        yield "", finding["source"]
    code = finding["code"]
    if code:
        yield "bold", f"    {code['lines'][code['line'] - code['first']].strip()}"
    for word, slots in (("in ", finding["inputs"]), ("out", finding["outputs"])):
        for slot in slots[:MOST_LINES]:
            yield "", f"{word} {slot['slot']:<3} {slot['line']}"
    for reason in finding["reasons"]:
        yield "bad", reason


def _lines(texts: Sequence[tuple[str, str]], width: int) -> tuple[list[str], int]:
    """Lines of text from the top, and where the next thing begins."""
    room = int((width - 2 * MARGIN) / LETTER)
    parts = [
        _text(MARGIN, MARGIN + 10 + row * LINE, text, kind, most=room)
        for row, (kind, text) in enumerate(texts)
    ]
    return parts, MARGIN + len(texts) * LINE + LINE // 2


def _node(node: Any, call: Any, name: Any, finding: dict[str, Any], top: int) -> str:
    x, y = node.x + MARGIN, node.y + top
    if node.folded:
        return _text(x + 20, y + 28, f"⋮ {node.folded} more calls", "soft")
    kind = place_in_path(node.id, call, finding)
    colour, shape = KINDS[kind]
    written = [tensor for tensor in (call or {}).get("tensors", ()) if tensor["io"] == "output"]
    ground = "#fdf0e8" if kind in {"origin", "reached"} else "#ffffff"
    edge = 2 if kind == "origin" else 1
    room = int((WIDTH - 28) / LETTER)
    brief = written[0]["brief"] if written else kind
    box = f'x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{ground}"'
    return (
        f'<rect {box} stroke="{colour}" stroke-width="{edge}"/>'
        + _text(x + 10, y + 19, f"{shape} {name[0] if name else node.id}", "bold", most=room)
        + _text(x + 10, y + 37, brief, "soft", most=room)
    )


def _edge(points: Sequence[tuple[int, int]], top: int) -> str:
    wrong = len(points) == 2  # down the path
    colour, width = ("#b3400a", 2.2) if wrong else ("#5b6470", 1)
    d = "L".join(f"{x + MARGIN} {y + top}" for x, y in points)
    return f'<path d="M{d}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _chart(tensors: Sequence[dict[str, Any]], top: int) -> Iterator[str]:
    """The largest magnitude of each tensor over the steps, by powers of ten; a mark where elements
    are not finite.
    """
    curves = [_curve(tensor["series"]) for tensor in tensors]
    steps = [step for curve in curves for step, _, _ in curve]
    powers = [math.log10(value) for curve in curves for _, value, _ in curve if value]
    low, high = (math.floor(min(powers)), math.ceil(max(powers))) if powers else (0, 1)
    scale = Scale(min(steps), max(steps), low, max(high, low + 1), top + 16)
    yield _text(MARGIN, top, "largest magnitude over the steps", "soft")
    yield from _axes(scale)
    for row, (tensor, curve) in enumerate(zip(tensors, curves, strict=True)):
        drawn = " ".join(f"{x},{y}" for x, y in (scale.at(*each[:2]) for each in curve if each[1]))
        look = f'stroke="{COLOURS[row]}" stroke-width="2" stroke-dasharray="{DASHES[row]}"'
        yield f'<polyline points="{drawn}" fill="none" {look}/>'
        for step, value, wrong in curve:
            if wrong:
                x, y = scale.at(step, value or 10.0**scale.high)
                yield _text(x - 4, y + 4, KINDS["origin"][1], "bad")
        x, y = MARGIN + 60 + CHART[0], top + 24 + row * LINE
        yield f'<path d="M{x} {y - 4}h22" {look}/>'
        room = int((LEAST - MARGIN - x - 28) / LETTER)
        yield _text(x + 28, y, f"{tensor['io']} {tensor['slot']}", most=room)
    if any(wrong for curve in curves for _, _, wrong in curve):
        y = top + 24 + len(tensors) * LINE
        yield _text(MARGIN + 66 + CHART[0], y, f"{KINDS['origin'][1]}  not finite", "bad")


def _axes(scale: Scale) -> Iterator[str]:
    """Lines at powers of ten, numbers of the first and the last step."""
    for power in range(scale.low, scale.high + 1, max(1, -(-(scale.high - scale.low) // 6))):
        x, y = scale.at(scale.first, 10.0**power)
        yield f'<path d="M{x} {y}h{CHART[0]}" stroke="#e3e5e8"/>'
        yield _text(MARGIN, y + 4, f"1e{power}", "soft")
    for step in dict.fromkeys((scale.first, scale.last)):
        x, y = scale.at(step, 10.0**scale.low)
        yield _text(x - 4, y + 18, str(step), "soft")


def _curve(series: Sequence[Sequence[Any]]) -> list[tuple[int, float, int]]:
    """Step, largest finite magnitude (0 where nothing is finite), elements that are not finite."""
    points = []
    for step, low, high, wrong in series:
        ends = (abs(low or 0.0), abs(high or 0.0))
        finite = all(
            map(math.isfinite, ends)
        )  # the statistics of another tool may hold an infinity
        points.append((step, max(ends) if finite else 0.0, (wrong or 0) + (not finite)))
    return points


def _bars(label: str, picture: dict[str, Any], top: int) -> Iterator[str]:
    """Counts of elements in equal parts of their range."""
    counts, edges = picture["counts"], picture["edges"]
    most, wide = max(counts) or 1, BARS[0] / len(counts)
    yield _text(MARGIN, top, f"finite elements of {label}", "soft")
    floor = top + 16 + BARS[1]
    for bar, count in enumerate(counts):
        tall = round(count / most * BARS[1], 1)
        x = round(MARGIN + 46 + bar * wide, 1)
        box = f'x="{x}" y="{floor - tall}" width="{wide - 1}" height="{tall}"'
        yield f'<rect {box} fill="{COLOURS[0]}"/>'
    yield _text(MARGIN + 40, floor + 18, number(edges[0]), "soft")
    yield _text(MARGIN + 20 + BARS[0], floor + 18, number(edges[-1]), "soft")


def _text(x: float, y: float, text: str, kind: str = "", *, most: int = 1000) -> str:
    plain = printable(text)
    cut = plain if len(plain) <= most else f"{plain[: most - 1]}…"
    escaped = html.escape(cut).replace("\n", " ")
    return f'<text x="{x}" y="{y}" class="{kind}" xml:space="preserve">{escaped}</text>'


def _sheet(parts: Sequence[str], width: int, height: int) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{_STYLE}</style>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{inside}\n</svg>\n'
    )


def picture_file(svg: str, path: Path) -> bytes:
    """What a file of this name holds: the picture as PNG for .png, else as it is. Raises what png
    raises.
    """
    return png(svg) if path.suffix.lower() == ".png" else svg.encode()


def png(svg: str) -> bytes:
    """The bytes of a PNG file. Raises UnavailableError where resvg is not installed, and where the
    machine has none of the fonts that the picture names, whose letters would be missing.
    """
    try:
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "a picture as PNG needs resvg: pip install 'opscope[plot]'; .svg does without"
        ) from error
    drawn = bytes(svg_to_bytes(svg_string=svg, zoom=SCALE))
    wordless = svg.replace("<text", "<desc").replace("</text", "</desc")
    if wordless != svg and drawn == bytes(svg_to_bytes(svg_string=wordless, zoom=SCALE)):
        raise UnavailableError(
            "a picture as PNG needs a monospaced font, DejaVu Sans Mono say; .svg does without"
        )
    return drawn
