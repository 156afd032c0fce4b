# SPDX-License-Identifier: Apache-2.0
"""A comparison as one HTML page that needs nothing else: the verdict first, then a table to sort
and to filter.

Nothing of a run becomes markup or script: findings are escaped, rows lie in a JSON block without
"<", and the page's own Content-Security-Policy forbids every connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.report.compare_rows import columns_of, furthest, kind_of, left_out, rows_of
from opscope.report.json import json_text
from opscope.run.printable import printable

if TYPE_CHECKING:
    from opscope.compare.tell.comparison import Comparison
    from opscope.kernels.metrics import Metric
    from opscope.run.finding import Document, Finding

MOST_ROWS = 20_000  # in the page; the furthest apart are kept
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:100rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.4rem}code,pre{font-family:ui-monospace,monospace;font-size:13px;overflow-wrap:anywhere}
.f{border-left:4px solid #d1242f;padding:.2rem .8rem;margin:.8rem 0}.clean{border-color:#1a7f37}.c{color:#57606a}
.w{overflow:auto;max-height:75vh;border:1px solid #d0d7de}table{border-collapse:collapse;font-size:12.5px;white-space:nowrap}
th{position:sticky;top:0;background:#f6f8fa;cursor:pointer;text-align:left}th,td{padding:.25rem .6rem;border-bottom:1px solid #d0d7de}
.error{background:#ffebe9}.warning{background:#fff8c5}.unmatched,.none{background:#f6f8fa}
input,select,button{font:inherit;margin:.4rem .4rem .4rem 0}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,.unmatched,.none{background:#161b22}.c{color:#8b949e}
.error{background:#490202}.warning{background:#3b2e00}th,td,.w{border-color:#30363d}}
"""  # noqa: E501
_SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('rows').textContent);
const result = data.columns.indexOf('Result'), verdict = data.columns.indexOf('Verdict');
const $ = id => document.getElementById(id);
let column = -1, down = false, shown = 300;
const order = value => typeof value === 'number' ? value : value === 'inf' ? Infinity : value === '-inf' ? -Infinity : NaN;
function compare(a, b) {
  const x = order(a[column]), y = order(b[column]);
  if (isNaN(x) && isNaN(y)) return String(a[column]).localeCompare(String(b[column]));
  return isNaN(x) ? 1 : isNaN(y) ? -1 : x - y;
}
function draw() {
  const words = $('text').value.toLowerCase().split(/\\s+/).filter(Boolean), kind = $('kind').value;
  let rows = data.rows.filter(row => (!kind || row[result] === kind || row[verdict] === kind)
    && words.every(word => row.some(cell => String(cell).toLowerCase().includes(word))));
  if (column >= 0) { rows.sort(compare); if (down) rows.reverse(); }
  const body = document.createElement('tbody');
  for (const row of rows.slice(0, shown)) {
    const line = body.insertRow();
    line.className = row[result] === 'N/A' ? 'none' : row[result];
    for (const cell of row) line.insertCell().textContent = typeof cell === 'number' ? Number(cell.toPrecision(7)) : cell;
  }
  $('table').replaceChild(body, $('table').tBodies[0]);
  $('count').textContent = `${rows.length} rows` + (rows.length > shown ? `, ${shown} shown` : '');
  $('more').hidden = rows.length <= shown;
}
const head = $('table').tHead.insertRow();
data.columns.forEach((name, place) => {
  const cell = document.createElement('th');
  cell.textContent = name;
  cell.onclick = () => { down = column === place && !down; column = place; draw(); };
  head.append(cell);
});
for (const name of [...new Set(data.rows.flatMap(row => [row[result], row[verdict]]))].sort()) $('kind').add(new Option(name, name));
$('text').oninput = $('kind').onchange = () => { shown = 300; draw(); };
$('more').onclick = () => { shown += 1000; draw(); };
draw();
"""  # noqa: E501
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def write_comparison_html(
    comparison: Comparison, path: Path, metrics: Sequence[Metric] = ()
) -> int:
    """Writes the page; answers how many rows it leaves out."""
    path.write_text(
        comparison_html(comparison, metrics), encoding="utf-8", errors="backslashreplace"
    )
    return max(len(comparison.rows) - MOST_ROWS, 0)


def comparison_html(comparison: Comparison, metrics: Sequence[Metric] = ()) -> str:
    """The page of a comparison."""
    kind = kind_of(comparison)
    chosen = furthest(comparison, MOST_ROWS)
    left = len(comparison.rows) - len(chosen)
    block = {
        "columns": columns_of(kind, metrics),
        "rows": list(rows_of(comparison, kind, chosen, metrics=metrics)),
    }
    said = f"<p class=c>{left_out(left)}</p>" if left else ""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
        'content="width=device-width">'
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}"><title>opscope '
        f"compare</title><style>{_STYLE}</style>"
        f"{''.join(_verdict(comparison.document))}"
        "<p><input id=text placeholder='filter: words of any column' size=40>"
        "<select id=kind><option value=''>every result</option></select>"
        f"<span id=count class=c></span></p>{said}<div class=w><table "
        "id=table><thead></thead><tbody></tbody></table></div>"
        "<button id=more hidden>more rows</button>"
        "<script type='application/json' "
        f"id=rows>{_inert(block)}</script><script>{_SCRIPT}</script></html>\n"
    )


def _inert(block: Any) -> str:
    """JSON without a character that could end the script element."""
    return json_text(block).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _verdict(document: Document) -> Iterator[str]:
    target, golden = (_e(run) for run in document.runs)
    if not document.findings:
        found = (
            "These look like two different models."
            if document.summary.get("two_models")
            else "No difference was found in what could be compared."
        )
        words = "The runs agree." if document.complete else found
        yield f"<h1>{words}</h1><div class='f clean'>"
    else:
        yield f"<h1>{_e(_headline(document.findings[0]))}</h1><div class=f>"
    yield f"<p class=c>target <code>{target}</code> beside golden <code>{golden}</code></p></div>"
    for finding in document.findings:
        yield from _finding(finding)
    for text in document.summary.get("warnings", ()):
        yield f"<p class=c>warning: {_e(text)}</p>"


def _headline(finding: Finding) -> str:
    return f"{finding.kind.replace('-', ' ')}: {finding.op or ''} {finding.call or ''}"


def _finding(finding: Finding) -> Iterator[str]:
    where = f"step {finding.step}, rank {finding.rank}, {finding.confidence}"
    yield f"<div class=f><b>{_e(_headline(finding))}</b> <span class=c>{_e(where)}</span>"
    source = finding.source or (finding.forward.source if finding.forward is not None else None)
    if source:
        yield f"<br><code>{_e(source)}</code>"
    yield "".join(f"<br>{_e(reason)}" for reason in finding.reasons)
    yield "</div>"


def _e(text: object) -> str:
    return escape(printable(str(text)), quote=True)
