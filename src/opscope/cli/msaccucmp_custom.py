# SPDX-License-Identifier: Apache-2.0
"""`opscope-msaccucmp compare -c DIR -a …`: the user's own algorithms, run because the user names
them, and parameters for them.

DIR/algorithm/alg_NAME.py has compare(mine, golden, args), both flat float32 arrays (bool stays
bool), args with the parameters of -a as attributes. It answers two texts, the result and a reason,
as the manuals have it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from opscope.formats.cann.algorithms import NAMES, NAN, Answer, Values
from opscope.formats.cann.codes import Code, RefusedError
from opscope.narrow import widened

Algorithm = Callable[[Values, Values], Answer]
_FILE = re.compile(r"alg_(\w+)\.py", re.ASCII)


class Arguments(SimpleNamespace):
    """Parameters as attributes, and as the manuals' scripts may ask for them."""

    def get_dict(self) -> dict[str, Any]:
        """All of them."""
        return dict(vars(self))

    get = get_dict


def parameters(text: str | None) -> dict[str, dict[str, str]]:
    """What -a says, by algorithm; RefusedError for what is malformed."""
    by_algorithm: dict[str, dict[str, str]] = {}
    for part in filter(None, map(str.strip, (text or "").split(";"))):
        name, colon, values = (word.strip() for word in part.partition(":"))
        pairs = [[word.strip() for word in pair.split("=")] for pair in values.split(",")]
        if not colon or not name or not all(len(pair) == 2 and all(pair) for pair in pairs):
            raise RefusedError(
                Code.PARAMETER, f"-a {part}: written Algorithm:name=value,name=value;…"
            )
        known = (
            NAMES[int(name)]
            if name.isascii() and name.isdigit() and int(name[:4]) < len(NAMES)
            else name
        )
        by_algorithm.setdefault(known, {}).update((pair[0], pair[1]) for pair in pairs)
    return by_algorithm


def own_algorithms(directory: Path, given: dict[str, dict[str, str]]) -> dict[str, Algorithm]:
    """The algorithms of a directory by name, in order. Raises RefusedError where it has none, or
    one that cannot be used.
    """
    if not directory.is_dir():
        raise RefusedError(Code.PATH, f"{directory}: no such directory")
    files = sorted((directory / "algorithm").glob("alg_*.py"))
    algorithms = {
        match[1]: _algorithm(file, match[1], given.get(match[1], {}))
        for file in files
        if (match := _FILE.fullmatch(file.name))
    }
    if not algorithms:
        raise RefusedError(
            Code.ALGORITHM,
            f"{directory}: no algorithm/alg_NAME.py in it; layouts are all built in and need "
            "no script",
        )
    return algorithms


def _algorithm(path: Path, name: str, given: dict[str, str]) -> Algorithm:
    spec = importlib.util.spec_from_file_location(f"opscope_custom_{name}", path)
    if spec is None or spec.loader is None:
        raise RefusedError(Code.ALGORITHM, f"{path}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RefusedError(Code.ALGORITHM, f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, "compare", None)
    if not callable(function):
        raise RefusedError(Code.ALGORITHM, f"{path}: no function compare(mine, golden, args) in it")

    def answer(mine: Values, golden: Values) -> Answer:
        try:
            text, reason = function(_as_given(mine), _as_given(golden), Arguments(**given))
        except Exception as error:  # noqa: BLE001 - the user's own code; the table says what it raised
            return Answer(NAN, f"[{name}] {type(error).__name__}: {error}")
        return Answer(str(text), str(reason or ""))

    return answer


def _as_given(values: Values) -> Values:
    flat = widened(values).reshape(-1)
    return flat if flat.dtype.kind == "b" else np.real(flat).astype(np.float32)
