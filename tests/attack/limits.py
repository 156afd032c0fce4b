# SPDX-License-Identifier: Apache-2.0
"""What a program can tell of being recorded (README, Limits), left out of what is held against each
other: exactly that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from traceback import FrameSummary

# Where torch calls hooks of modules, a formula in Python is called, a thread begins.
FRAMES = {("module.py", "inner"), ("formulas.py", "apply"), ("exits.py", "bootstrap")}

# What a tracer hears of more: the way into opscope's hooks of modules, and torch where it looks up
# modes.
TRACED = FRAMES | {
    ("recorder.py", "_module_enters"), ("recorder.py", "_module_leaves"),
    ("recorder.py", "_guarded"), ("contain.py", "contain"), ("contain.py", "_find_room"),
    ("__init__.py", "is_compiling"), ("_jit_internal.py", "is_scripting"),
    ("effects.py", "__init__"), ("effects.py", "_set_default_effect"), ("fake_impl.py",
        "__init__"), ("simple_registry.py", "__init__"), ("simple_registry.py", "find"),
        ("simple_registry.py", "find_torch_dispatch_rule"), ("utils.py", "parse_namespace"),
}  # fmt: skip

# Waits in sys.meta_path for what torch imports late: its compiler, packages of compiled models.
FINDERS = {"AfterImport"}


def functions(frames: Iterable[FrameSummary]) -> list[str]:
    """Names of the functions of a stack."""
    return [frame.name for frame in frames if (Path(frame.filename).name, frame.name) not in FRAMES]


def operators(code: str) -> list[str]:
    """What a compiled graph calls: with hooks of modules its inputs come in another order, and have
    other numbers and names.
    """
    return sorted(re.findall(r"[\w.]+(?=\()", code))
