# SPDX-License-Identifier: Apache-2.0
"""README.md of a repro folder: what was seen, how to run it, what the numbers are. Text of a run appears only in code spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opscope.repro.case import Case
from opscope.repro.failure import WORDS, failure_words
from opscope.repro.forms import form_named
from opscope.run.dtypes import short_dtype

HOW_TO_RUN = """One operator call, cut out of a recorded run. Run it:

```sh
python repro.py
```

It needs {needs}, nothing else. Exit code 1: the failure shows; 0: it does not; 125: it cannot be tried here
(device, operator, element type or library missing). `--device cpu` moves the call, `--dtype float32` or `float64` shows
whether wider arithmetic avoids the failure, `--repeat 10` makes the call ten times."""
FILES = """## Files

- `repro.py` the script
- `case.json` the call, its tensors, what was recorded of the outputs
- `inputs.safetensors` the elements of the inputs by slot (types that safetensors lacks as bytes)
- `expected.safetensors` the recorded outputs, where they were kept"""


def readme_text(case: Case) -> str:
    """Markdown for one case."""
    sections = [
        f"# {_code(case.op)}: {_escape(failure_words(case.failure))}",
        HOW_TO_RUN.format(needs=form_named(case.form).needs),
        "## The call",
        _fence(form_named(case.form).code(case), "python"),
        _table(["where", "what"], _place(case)),
        "## What was seen",
        _table(["", "slot", "tensor", "values"], _tensors(case)),
        *_failure(case),
        *(["## Beware", "\n".join(f"- {_escape(warning)}" for warning in case.warnings)] if case.warnings else []),
        *_library(case),
        "## Where it was recorded",
        _table(["", ""], _environment(case)),
        FILES,
    ]
    return "\n\n".join(sections) + "\n"


def tensor_line(dtype: str, shape: Sequence[int], stats: Mapping[str, Any]) -> str:
    """`f16[32, 64] x∈[-310, 298] 37 inf`, the range over the finite elements."""
    low, high = stats.get("min_int", stats.get("min")), stats.get("max_int", stats.get("max"))
    text = f"{short_dtype(dtype)}[{', '.join(map(str, shape))}]"
    if low is not None and high is not None:
        text += f" x∈[{number(low)}, {number(high)}]"
    return text + "".join(f" {stats[name]} {word}" for name, word in WORDS.items() if stats.get(name))


def number(value: float) -> str:
    """Three digits, whole numbers below a million exactly: `-310`, `65504`, `3.4e38`, `0.00123`."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def _place(case: Case) -> list[list[str]]:
    told = [["name", _code(case.call)], ["step, rank, index", f"{case.step}, {case.rank}, {case.index}"], ["phase", _code(case.phase)]]
    told += [["module", _code(case.module)]] if case.module else []
    told += [["line", _code(case.source)]] if case.source else []
    return [*told, ["device", _code(case.device)]]


def _tensors(case: Case) -> list[list[str]]:
    told = []
    for row in case.tensors:
        line = tensor_line(row.dtype, row.shape, row.stats)
        told.append(["in", _code(row.slot), _code(line), row.values + (f", {_code(row.tensor_name)}" if row.tensor_name else "")])
    told += [
        ["out", _code(row.slot), _code(tensor_line(row.dtype, row.shape, row.stats)), "kept" if row.key else ""] for row in case.outputs
    ]
    return told


def _failure(case: Case) -> list[str]:
    said = [f"Failure: {_escape(failure_words(case.failure))}."]
    if case.failure.status:
        said.append(f"Overflow bits: {_code(case.failure.status)}.")
    if case.failure.error is not None:
        said.append("Error: " + _code(f"{case.failure.error.type}: {case.failure.error.text}"))
    return said


def _library(case: Case) -> list[str]:
    if case.form != "torch" or case.op.startswith(("aten::", "prims::")):
        return []
    named = " ".join(f"--import {name}" for name in case.imports) or "--import MODULE"
    text = "`--import` also takes a .py file or a shared library; without it the script ends with exit code 125."
    return [f"## The library of {_code(case.op)}", "This operator is not torch's own: name what registers it.",
            _fence([f"python repro.py {named}"]), text]  # fmt: skip


def _environment(case: Case) -> list[list[str]]:
    packages = case.environment.get("packages", {})
    variables = case.environment.get("variables", {})
    told = [[_code(name), _code(value)] for name, value in sorted({**packages, **variables}.items())]
    return [*told, ["run format", _code(case.environment.get("run_format"))], ["seed", _code(case.environment.get("seed"))]]


def _code(text: object) -> str:
    """A code span whose text can neither end it nor break a table's row."""
    plain = _printable(text)
    longest = max((len(run) for run in _backticks(plain)), default=0)
    fence = "`" * (longest + 1)
    padded = f" {plain} " if plain.startswith("`") or plain.endswith("`") or not plain else plain
    return f"{fence}{padded}{fence}"


def _backticks(text: str) -> list[str]:
    return [part for part in "".join(c if c == "`" else " " for c in text).split(" ") if part]


def _escape(text: str) -> str:
    """Plain Markdown text without markup: every ASCII punctuation character escaped."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+!&~" else c for c in _printable(text))


def _printable(text: object) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))[:2000]


def _fence(lines: Sequence[str], language: str = "sh") -> str:
    longest = max((len(run) for line in lines for run in _backticks(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + language, *lines, fence])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in cells)])
