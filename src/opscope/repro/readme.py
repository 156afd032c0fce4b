# SPDX-License-Identifier: Apache-2.0
"""README.md of a repro folder: what was seen, how to run it, what the numbers are. Text of a run
appears only in code spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opscope.repro.case import Case
from opscope.repro.failure import WORDS, failure_words
from opscope.repro.forms import form_named
from opscope.repro.markdown import code, escape, fence, table
from opscope.run.dtypes import short_dtype
from opscope.run.printable import number

NUMERIC = frozenset({"python", "torch", "torch_npu", "mindspore", "numpy", "transformers"})
HOW_TO_RUN = """One operator call, cut out of a recorded run. Run it:

```sh
python repro.py
```

It needs {needs}, nothing else. Exit code 1: the failure shows; 0: it does not; 125: it cannot be tried here
(device, operator, element type or library missing). `--device cpu` moves the call, `--dtype float32` or `float64` shows
whether wider arithmetic avoids the failure, `--repeat 10` makes the call ten times."""  # noqa: E501
FILES = """## Files

- `repro.py` the script
- `case.json` the call, its tensors, what was recorded of the outputs
- `inputs.safetensors` the elements of the inputs by slot (types that safetensors lacks as bytes)
- `expected.safetensors` the recorded outputs, where they were kept"""


def readme_text(case: Case) -> str:
    """Markdown for one case."""
    sections = [
        f"# {code(case.op)}: {escape(failure_words(case.failure))}",
        HOW_TO_RUN.format(needs=form_named(case.form).needs),
        "## The call",
        fence(form_named(case.form).code(case), "python"),
        table(["where", "what"], _place(case)),
        "## What was seen",
        table(["", "slot", "tensor", "values"], _tensors(case)),
        *_failure(case),
        *(
            ["## Beware", "\n".join(f"- {escape(warning)}" for warning in case.warnings)]
            if case.warnings
            else []
        ),
        *_library(case),
        "## Where it was recorded",
        table(["", ""], environment_rows(case)),
        FILES,
    ]
    return "\n\n".join(sections) + "\n"


def tensor_line(dtype: str, shape: Sequence[int], stats: Mapping[str, Any]) -> str:
    """`f16[32, 64] x∈[-310, 298] 37 inf`, the range over the finite elements."""
    low, high = stats.get("min_int", stats.get("min")), stats.get("max_int", stats.get("max"))
    text = f"{short_dtype(dtype)}[{', '.join(map(str, shape))}]"
    if low is not None and high is not None:
        text += f" x∈[{number(low)}, {number(high)}]"
    return text + "".join(
        f" {stats[name]} {word}" for name, word in WORDS.items() if stats.get(name)
    )


def _place(case: Case) -> list[list[str]]:
    told = [
        ["name", code(case.call)],
        ["step, rank, index", f"{case.step}, {case.rank}, {case.index}"],
        ["phase", code(case.phase)],
    ]
    told += [["module", code(case.module)]] if case.module else []
    told += [["line", code(case.source)]] if case.source else []
    return [*told, ["device", code(case.device)]]


def _tensors(case: Case) -> list[list[str]]:
    told = []
    for row in case.tensors:
        line = tensor_line(row.dtype, row.shape, row.stats)
        told.append(
            [
                "in",
                code(row.slot),
                code(line),
                row.values + (f", {code(row.tensor_name)}" if row.tensor_name else ""),
            ]
        )
    told += [
        [
            "out",
            code(row.slot),
            code(tensor_line(row.dtype, row.shape, row.stats)),
            "kept" if row.key else "",
        ]
        for row in case.outputs
    ]
    return told


def _failure(case: Case) -> list[str]:
    said = [f"Failure: {escape(failure_words(case.failure))}."]
    if case.failure.status:
        said.append(f"Overflow bits: {code(case.failure.status)}.")
    if case.failure.error is not None:
        said.append("Error: " + code(f"{case.failure.error.type}: {case.failure.error.text}"))
    return said


def _library(case: Case) -> list[str]:
    if case.form != "torch" or case.op.startswith(("aten::", "prims::")):
        return []
    named = " ".join(f"--import {name}" for name in case.imports) or "--import MODULE"
    text = (
        "`--import` also takes a .py file or a shared library; without it the script ends with "
        "exit code 125."
    )
    return [
        f"## The library of {code(case.op)}",
        "This operator is not torch's own: name what registers it.",
        fence([f"python repro.py {named}"]),
        text,
    ]


def environment_rows(case: Case) -> list[list[str]]:
    """Packages that numbers depend on, variables and origin of a run as rows of a table; case.json
    has all packages.
    """
    packages = {
        name: version
        for name, version in case.environment.get("packages", {}).items()
        if name in NUMERIC
    }
    variables = case.environment.get("variables", {})
    told = [[code(name), code(value)] for name, value in sorted({**packages, **variables}.items())]
    return [
        *told,
        ["run format", code(case.environment.get("run_format"))],
        ["seed", code(case.environment.get("seed"))],
    ]
