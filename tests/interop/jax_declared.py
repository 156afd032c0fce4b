# SPDX-License-Identifier: Apache-2.0
"""A primitive of the program's own guards against NaN: python jax_declared.py FOLDER NAME..., of
declared (the program says so) and plain (it does not).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

import opscope

NO_NAN = Primitive("no_nan")
NO_NAN.def_impl(lambda x: jnp.where(jnp.isnan(x), 0, x))
NO_NAN.def_abstract_eval(lambda x: x)


def guarded(x: Any) -> Any:
    return NO_NAN.bind(x / x)


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        if name == "declared":
            opscope.declare("jax::no_nan", guards=True, picks=True)
        watched = opscope.watch_jax(jax.jit(guarded), folder / name)
        watched(jnp.zeros(4))
        watched.recording.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
