# SPDX-License-Identifier: Apache-2.0
"""The kernel behind an error: the description the compiler wrote beside its binary, found by the
kernel's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opscope.ascend.fault import Fault
from opscope.errors import FormatError
from opscope.formats.bounded_json import load_json

_MAX = 32 << 20


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output as the kernel was compiled for; a dimension of -1 or -2 is dynamic."""

    name: str | None = None
    index: int = 0
    dtype: str | None = None
    format: str | None = None
    kind: str | None = None
    shape: tuple[int, ...] | None = None


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's description; document is the whole of it. object is its binary where it lies among
    the files.
    """

    file: str
    name: str
    binary: str
    functions: tuple[str, ...] = ()
    inputs: tuple[Parameter, ...] = ()
    outputs: tuple[Parameter, ...] = ()
    attributes: tuple[dict[str, Any], ...] = ()
    block_dim: int | None = None
    core_type: str | None = None
    magic: str | None = None
    tiling_size: int | None = None
    dynamic: bool = False
    zeroed: tuple[int, ...] = ()
    workspace: tuple[int, ...] = ()
    sha256: str | None = None
    implementation: str | None = None
    document: dict[str, Any] = {}


def is_kernel(document: Any) -> bool:
    """Whether a JSON value is a kernel's description."""
    return (
        isinstance(document, dict)
        and "binFileName" in document
        and ("kernelName" in document or "magic" in document)
    )


def read_kernel(path: Path) -> Kernel:
    """The description a file holds. FormatError for any other JSON."""
    if path.stat().st_size > _MAX:
        raise FormatError(path, "is too large for a kernel's description")
    document = load_json(path)
    if not is_kernel(document):
        raise FormatError(path, "is JSON but no kernel's description: it has no binFileName")
    return kernel_of(document, str(path))


def kernel_of(document: dict[str, Any], file: str) -> Kernel:
    """A kernel of its description, which is_kernel accepts; file is where that was found."""
    support = _dict(document.get("supportInfo"))
    parameters = _list(document.get("parameters"))
    workspace = _list(_dict(document.get("workspace")).get("size"))
    block_dim = document.get("blockDim")
    size = document.get("opParaSize")
    return Kernel(
        file=file,
        name=str(document.get("kernelName") or document["binFileName"]),
        binary=str(document["binFileName"]),
        functions=tuple(
            str(_dict(one).get("kernelName"))
            for one in _list(document.get("kernelList"))
            if _dict(one).get("kernelName")
        ),
        inputs=_parameters(support.get("inputs")),
        outputs=_parameters(support.get("outputs")),
        attributes=tuple(one for one in _list(support.get("attrs")) if isinstance(one, dict)),
        block_dim=block_dim if isinstance(block_dim, int) else None,
        core_type=str(document.get("coreType") or document.get("core_type") or "") or None,
        magic=str(document["magic"]) if document.get("magic") else None,
        tiling_size=size if isinstance(size, int) else None,
        dynamic="compileInfo" in document or support.get("opMode") == "dynamic",
        zeroed=tuple(
            number for number, one in enumerate(parameters) if one is not None and one != 0
        ),
        workspace=tuple(one for one in workspace if isinstance(one, int)),
        sha256=str(document["sha256"]) if document.get("sha256") else None,
        implementation=str(support["implMode"]) if support.get("implMode") else None,
        document=document,
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parameters(value: Any) -> tuple[Parameter, ...]:
    parameters = []
    for number, one in enumerate(_list(value)):
        entry = one[0] if isinstance(one, list) and one else one  # a list of tensors is a list here
        if not isinstance(entry, dict):
            continue
        shape = entry.get("shape")
        parameters.append(
            Parameter(
                name=entry.get("name") if isinstance(entry.get("name"), str) else None,
                index=entry["index"] if isinstance(entry.get("index"), int) else number,
                dtype=entry.get("dtype") if isinstance(entry.get("dtype"), str) else None,
                format=entry.get("format") if isinstance(entry.get("format"), str) else None,
                kind=entry.get("paramType") if isinstance(entry.get("paramType"), str) else None,
                shape=tuple(dim for dim in shape if isinstance(dim, int))
                if isinstance(shape, list)
                else None,
            )
        )
    return tuple(parameters)


def kernel_names(fault: Fault) -> tuple[str, ...]:
    """Names the kernel may have in its description, the fullest first: without __kernel0, _mix_aic,
    _mix_aiv, the tiling key.
    """
    names: dict[str, None] = {}
    for name in (fault.described.get("dev_func"), fault.function, fault.kernel):
        if name:
            names.update(dict.fromkeys(stripped(name, fault.tiling_key)))
    return tuple(names)


def stripped(name: str, tiling_key: str | None) -> tuple[str, ...]:
    """A function's name and what is left of it when each ending is taken off."""
    names = [name]
    for ending in ("__kernel0", "_mix_aic", "_mix_aiv"):
        if names[-1].endswith(ending):
            names.append(names[-1].removesuffix(ending))
    if tiling_key and names[-1].endswith(f"_{tiling_key}"):
        names.append(names[-1].removesuffix(f"_{tiling_key}"))
    elif keyed := re.fullmatch(r"(.+_[0-9a-f]{32,})_\d+", names[-1]):
        names.append(keyed[1])
    return tuple(names)


def choose(kernels: Sequence[Kernel], names: Iterable[str]) -> Kernel | None:
    """The description of the kernel of these names: one that names it, else one whose binary is
    called so.
    """
    wanted = tuple(names)
    for name in wanted:
        for kernel in kernels:
            if name in (kernel.name, *kernel.functions):
                return kernel
    bases = {one.removesuffix("__kernel0") for one in wanted}
    return next(
        (
            kernel
            for kernel in kernels
            if kernel.name.removesuffix("__kernel0") in bases or kernel.binary in bases
        ),
        None,
    )
