# SPDX-License-Identifier: Apache-2.0
"""Element types and device formats by the numbers CANN writes.

Two enumerations of element types are in use: the proto one (dump headers, ge_proto text) and GE's
own (nano dumps, aclTensor). opscope.run.dtypes knows both; here stand also the numbers that name no
type of a tensor's elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from opscope.run.dtypes import DTYPES


class ElementType(NamedTuple):
    """One element type: opscope's name, CANN's numbers and name, bits of one element in the file.

    numpy is the name that NumPy or opscope.narrow has of the elements as they lie in the file, None
    where they must be decoded; bits 0 means that no public source says how they lie.
    """

    name: str
    proto: int
    ge: int
    bits: int
    cann: str
    numpy: str | None = None

    def nbytes(self, count: int) -> int:
        """Bytes that count elements take; a last byte may be partly used."""
        return (count * self.bits + 7) // 8

    def fit(self, nbytes: int) -> int:
        """How many whole elements nbytes hold."""
        return nbytes * 8 // self.bits if self.bits else 0


UNDEFINED = ElementType("undefined", 0, 28, 8, "DT_UNDEFINED", "int8")
_OTHERS = (
    UNDEFINED,
    ElementType("int8", 14, 14, 8, "DT_DUAL_SUB_INT8", "int8"),
    ElementType("uint8", 15, 15, 8, "DT_DUAL_SUB_UINT8", "uint8"),
    ElementType("int64", 23, 23, 64, "DT_RESOURCE", "int64"),
    ElementType("string_ref", 24, 24, 0, "DT_STRING_REF"),
    ElementType("dual", 25, 25, 0, "DT_DUAL"),
    ElementType("variant", 26, 26, 0, "DT_VARIANT"),
    ElementType("hifloat4_scale", 42, 43, 0, "DT_HIFLOAT4_SCALE"),
)
_UNPUBLISHED = frozenset(("float6_e3m2", "float6_e2m3", "float4_e1m2", "hifloat4", "string"))
TYPES = _OTHERS + tuple(
    ElementType(
        kind.name,
        kind.proto,
        kind.ge,
        0 if kind.name in _UNPUBLISHED else kind.bits,
        f"DT_{kind.cann}",
        kind.numpy,
    )
    for kind in DTYPES
    if kind.proto is not None and kind.ge is not None
)
BY_PROTO = {kind.proto: kind for kind in TYPES}
BY_GE = {kind.ge: kind for kind in TYPES}
BY_NAME = {kind.name: kind for kind in TYPES}


def element_type(proto: int) -> ElementType:
    """Type of a proto number; an unknown number is a type whose elements cannot be read."""
    return BY_PROTO.get(proto) or ElementType(f"type{proto}", proto, -1, 0, f"DT_{proto}")


def from_ge(number: int) -> int:
    """Proto number of a GE number; unknown ones become negative, so that to_ge can give them
    back.
    """
    kind = BY_GE.get(number)
    return kind.proto if kind else -1 - number


def to_ge(number: int) -> int:
    """GE number of a proto number, the inverse of from_ge."""
    return BY_PROTO[number].ge if number in BY_PROTO else -1 - number


def _layouts() -> Iterator[tuple[str, int]]:
    """Names and numbers of device layouts, of layouts.txt."""
    text = files("opscope.formats.cann").joinpath("layouts.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            number, name = line.split()
            yield name, int(number)


FORMAT_NUMBERS = dict(_layouts())
_FORMAT_NAMES = {number: name for name, number in reversed(FORMAT_NUMBERS.items())}


def format_name(number: int) -> str:
    """Name of a primary format number; FORMAT_n for one nobody named."""
    return _FORMAT_NAMES.get(number, f"FORMAT_{number}")
