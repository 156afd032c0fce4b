# SPDX-License-Identifier: Apache-2.0
"""Prints the primitives of the installed JAX that stand in no sheet of the catalogue, one a line.

Those that only Pallas and Mosaic have are left out: they stand inside of kernels, which are one
call of a program.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
import sys
import warnings

import jax
from jax.extend.core import Primitive

from opscope.operators.catalogue import SHEETS, sheet
from opscope.operators.spelling import word_of


def imported() -> None:
    """Everything of JAX that can be imported here."""
    for module in pkgutil.walk_packages(jax.__path__, "jax."):
        if "tools" not in module.name:
            with contextlib.suppress(Exception, SystemExit):
                importlib.import_module(module.name)


def homes(primitive: Primitive) -> list[str]:
    """The modules that have a name for a primitive."""
    return [
        name
        for name, module in sys.modules.items()
        if name.startswith("jax") and any(each is primitive for each in vars(module).values())
    ]


def main() -> None:
    warnings.simplefilter("ignore")
    imported()
    primitives = [each for each in gc.get_objects() if isinstance(each, Primitive)]
    words = {row for name in SHEETS for row in sheet(name).rows}
    for primitive in primitives:
        if word_of(f"jax::{primitive.name}") in words:
            continue
        if any("pallas" not in name and "mosaic" not in name for name in homes(primitive)):
            print(primitive.name)
    print(len({each.name for each in primitives}), "primitives", file=sys.stderr)


if __name__ == "__main__":
    main()
