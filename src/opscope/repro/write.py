# SPDX-License-Identifier: Apache-2.0
"""Writes a repro folder: all of it or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opscope.errors import UsageError
from opscope.formats.registry import open_run
from opscope.questions.told_operators import knowing_of
from opscope.repro.api import build_api
from opscope.repro.build import Material
from opscope.repro.case import FILE, Case, encode_case
from opscope.repro.forms import form_named, form_of
from opscope.repro.graph import Part, part_of, write_part
from opscope.repro.readme import readme_text
from opscope.repro.rows import judged
from opscope.repro.tensorfile import write_tensors
from opscope.run.names import resolve
from opscope.run.place import with_own_name

if TYPE_CHECKING:
    from opscope.repro.runner import Outcome
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

SCRIPT = "repro.py"
INPUTS = "inputs.safetensors"
EXPECTED = "expected.safetensors"
README = "README.md"


class Repro(msgspec.Struct, frozen=True, kw_only=True):
    """A repro folder: written maps each file to its bytes; outcome is what executing it gave, None
    before that.
    """

    directory: str
    call: str
    written: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    outcome: Outcome | None = None


def write(
    run: Run | str | os.PathLike[str],
    call: Call | str,
    directory: str | os.PathLike[str],
    *,
    device: str | None = None,
    dtype: str | None = None,
    imports: Sequence[str] = (),
) -> Repro:
    """Cut one operator call out into a folder with a script that stands alone.

    run is an open one or a path, call a row of its calls or a CALL as the command line takes it.

    device and dtype are what the script uses unless told otherwise (by default the recorded ones),
    imports the modules, .py files or shared libraries that it loads first, for operators that torch
    does not have. The directory must not exist or be empty. Raises UsageError for a call that
    cannot be made again, with the reason, and MissingValueError when an input has neither values
    nor statistics; nothing is written then.
    """
    run = open_run(run)
    call = resolve(run, call).call if isinstance(call, str) else call
    material = (
        part_of(run, call)
        if call.level == "graph"
        else cut(run, call, device=device, dtype=dtype, imports=imports)
    )
    return save(material, Path(directory))


def cut(
    run: Run,
    call: Call,
    *,
    device: str | None = None,
    dtype: str | None = None,
    imports: Sequence[str] = (),
    level: str = "kernel",
) -> Material:
    """What write writes, for who wants to change it first (privacy.without_data, say); raises as
    write does.

    level "api" takes the user's function with its backward pass in place of the operator, for calls
    of PyTorch.
    """
    form = form_of(run, call)
    if level == "api" and form.name != "torch":
        raise UsageError(
            f"{call.name}: --level api is for calls of PyTorch, this one is of {form.name}"
        )
    if form.name == "torch" and any(
        sample.gradient is not None
        for sample in judged(run, process=call.process, index=call.index)
    ):
        level = "api"  # the formula of a call is wrong, not its result
    with knowing_of(run):
        material = (build_api if level == "api" else form.build)(
            run, call, device=device, dtype=dtype
        )
    return msgspec.structs.replace(
        material, case=msgspec.structs.replace(material.case, imports=tuple(imports))
    )


def save(material: Material | Part, directory: Path) -> Repro:
    """Write a case, or a part of a graph, and its values to a directory that does not exist or is
    empty; UsageError when it cannot be.
    """
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory} exists and is not an empty directory; give another name with -o"
        )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be made ({error.strerror}); give another name with -o"
        ) from error
    try:
        if isinstance(material, Part):
            write_part(material, unfinished)
        else:
            _write_files(material, unfinished)
        unfinished.chmod(0o755)
        os.replace(unfinished, directory)  # noqa: PTH105 - takes the place of an empty directory
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be written ({error.strerror}); free space or give another "
            "name with -o"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    written = {path.name: path.stat().st_size for path in sorted(directory.iterdir())}
    call, warnings = (
        (material.call, ())
        if isinstance(material, Part)
        else (material.case.call, material.case.warnings)
    )
    return Repro(directory=str(directory), call=call, written=written, warnings=warnings)


def free_folder(wanted: Path) -> Path:
    """The folder asked for, or a sibling of one that holds something: nothing is overwritten."""
    candidate, number = wanted, 2
    if candidate.exists():
        wanted = with_own_name(wanted)
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        candidate, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    return candidate


def _write_files(material: Material, directory: Path) -> None:
    case: Case = material.case
    form = form_named(case.form)
    (directory / SCRIPT).write_text(form.script(case), encoding="utf-8")
    for name, content in form.files(case).items():
        (directory / name).write_bytes(content)
    (directory / FILE).write_bytes(encode_case(case))
    write_tensors(directory / INPUTS, material.inputs)
    if material.expected:
        write_tensors(directory / EXPECTED, material.expected)
    (directory / README).write_text(readme_text(case), encoding="utf-8")
