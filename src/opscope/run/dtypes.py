# SPDX-License-Identifier: Apache-2.0
"""Element types of tensors: one canonical name for each, and what every world calls it.

The canonical name, the one in column dtype of table tensors, is PyTorch's short name without
"torch." ("float16", "bfloat16", "float8_e4m3fn", "bool", "complex64"). Types that PyTorch does not
have keep the name of their origin ("hifloat8", "string"). bfloat16 and the fp8 types are
their bits under a type that names them (opscope.narrow); types narrower than a byte and hifloat8
have no NumPy type here and are stored as raw bytes.

CANN numbers: column "proto" is the enumeration of dump headers and GE's text graphs, column "ge"
the one of the C++ API.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


class DType(msgspec.Struct, frozen=True):
    """One element type; bits is its true width, numpy the name of its type in NumPy or
    opscope.narrow (None: raw bytes only).
    """

    name: str
    kind: str  # float | int | uint | bool | complex | string
    bits: int
    numpy: str | None = None
    safetensors: str | None = None
    mindspore: str | None = None
    cann: str | None = None
    proto: int | None = None
    ge: int | None = None
    aliases: tuple[str, ...] = ()
    torch: str | None = None  # its full name there

    @property
    def itemsize(self) -> int:
        """Bytes of one element, rounded up; 0 for types of no fixed width."""
        return (self.bits + 7) // 8

    def nbytes(self, elements: int) -> int:
        """Bytes that this many elements fill when packed without gaps."""
        return (elements * self.bits + 7) // 8

    def to_numpy(self) -> np.dtype[Any]:
        """Type of an element in NumPy arrays; UsageError for a type that these do not have."""
        from opscope import narrow

        if self.numpy is None:
            raise UsageError(f"{self.name} has no NumPy type; its values are kept as raw bytes")
        return narrow.numpy_type(self.numpy)


def _shipped() -> tuple[DType, ...]:
    """The rows of dtypes.txt."""
    lines = files("opscope.run").joinpath("dtypes.txt").read_text(encoding="utf-8").splitlines()
    columns, *rows = (line.split() for line in lines if not line.startswith("#"))
    return tuple(_row(dict(zip(columns, row, strict=True))) for row in rows)


def _row(cells: dict[str, str]) -> DType:
    known: dict[str, Any] = {name: cell for name, cell in cells.items() if cell != "-"}
    known |= {name: int(known[name]) for name in ("bits", "proto", "ge") if name in known}
    known["aliases"] = tuple(filter(None, known.get("aliases", "").split(",")))
    return DType(**known)


DTYPES = _shipped()


def _spelling(name: str) -> str:
    """Reduce a spelling to what is compared: lower case, without the prefixes torch., mindspore.,
    numpy., dt_.
    """
    text = name.strip().lower()
    for prefix in ("torch.", "mindspore.", "numpy.", "np.", "ml_dtypes.", "dt_"):
        text = text.removeprefix(prefix)
    return text


def _spellings() -> dict[str, DType]:
    """All spellings. NumPy's array codes ("u8" for 64 bits) are left out: safetensors' "U8" has 8
    bits.
    """
    known: dict[str, DType] = {}
    for entry in DTYPES:
        for alias in entry.aliases:
            known[_spelling(alias)] = entry
    for entry in DTYPES:
        for spelling in (entry.safetensors, entry.cann, entry.mindspore, entry.name):
            if spelling is not None:
                known[_spelling(spelling)] = entry
    return known


_SPELLINGS = _spellings()


@lru_cache(maxsize=512)
def find_dtype(name: str) -> DType | None:
    """The type any world calls so ("torch.half", "Float16", "DT_FLOAT16", "F16"), or None."""
    return _SPELLINGS.get(_spelling(name))


def dtype_of(name: str) -> DType:
    """The type any world calls so; UsageError for an unknown name."""
    dtype = find_dtype(name)
    if dtype is None:
        raise UsageError(f"unknown element type {name!r}")
    return dtype


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """The type of an array, NumPy's, ours or ml_dtypes'; UsageError for object arrays, dates and
    other types tensors do not have.
    """
    from opscope.narrow import name_of

    if dtype.kind in "SU":
        return _SPELLINGS["string"]
    known = _SPELLINGS.get(name_of(dtype))
    if known is None or known.numpy is None:
        raise UsageError(f"NumPy type {dtype.name!r} is not the type of a tensor")
    return known


_LETTERS = {"float": "f", "int": "i", "uint": "u", "complex": "c"}


def short_dtype(name: str) -> str:
    """`f16` for float16, `bf16`, `f8e4m3fn`, `i64`, `u8`, `c64`, `bool`; an unknown type keeps its
    name.
    """
    dtype = find_dtype(name)
    if dtype is None or dtype.kind not in _LETTERS:
        return name
    if dtype.name.startswith("bfloat"):
        return f"bf{dtype.bits}"
    if "_" in dtype.name or not dtype.name.startswith(("float", "int", "uint", "complex")):
        return dtype.name.replace("float", "f").replace("_", "")
    return f"{_LETTERS[dtype.kind]}{dtype.bits}"
