# SPDX-License-Identifier: Apache-2.0
"""Element types of tensors: one canonical name for each, and what every world calls it.

The canonical name, the one in column dtype of table tensors, is PyTorch's short name without
"torch." ("float16", "bfloat16", "float8_e4m3fn", "bool", "complex64"). Types that PyTorch does not
have keep the name of their origin ("hifloat8", "string"). bfloat16 and the fp8 types are kept true
through ml_dtypes; types narrower than a byte and hifloat8 have no NumPy type here and are stored as
raw bytes.

CANN numbers: column "proto" is the enumeration of dump headers and GE's text graphs, column "ge"
the one of the C++ API.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


class DType(msgspec.Struct, frozen=True):
    """One element type; bits is its true width, numpy the name of its NumPy or ml_dtypes type
    (None: raw bytes only).
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

    @property
    def itemsize(self) -> int:
        """Bytes of one element, rounded up; 0 for types of no fixed width."""
        return (self.bits + 7) // 8

    @property
    def torch(self) -> str | None:
        """Full PyTorch name, "torch.float16"; None for a type PyTorch does not have."""
        return None if self.name in _NOT_IN_TORCH else f"torch.{self.name}"

    def nbytes(self, elements: int) -> int:
        """Bytes that this many elements fill when packed without gaps."""
        return (elements * self.bits + 7) // 8

    def to_numpy(self) -> np.dtype[Any]:
        """NumPy type of an element; UsageError for a type NumPy and ml_dtypes do not have."""
        import numpy as np

        if self.numpy is None:
            raise UsageError(f"{self.name} has no NumPy type; its values are kept as raw bytes")
        if self.numpy in _ML_DTYPES:
            import ml_dtypes

            extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.numpy))
            return extended
        return np.dtype(self.numpy)


_ML_DTYPES = frozenset(
    {
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e4m3b11fnuz",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e8m0fnu",
    }
)
_NOT_IN_TORCH = frozenset({
    "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4", "hifloat8", "hifloat4", "float6_e3m2",
    "float6_e2m3", "float4_e2m1", "float4_e1m2", "qint16", "quint16", "string",
})  # fmt: skip

#      name, kind, bits, numpy, safetensors, MindSpore, CANN, proto, GE, other spellings
DTYPES: tuple[DType, ...] = (
    DType("float64", "float", 64, "float64", "F64", "Float64", "DOUBLE", 12, 11,
        ("double", "fp64")), DType("float32", "float", 32, "float32", "F32", "Float32", "FLOAT", 1,
        0, ("float", "fp32", "DT_FLOAT32")), DType("float16", "float", 16, "float16", "F16",
        "Float16", "FLOAT16", 2, 1, ("half", "fp16")), DType("bfloat16", "float", 16, "bfloat16",
        "BF16", "BFloat16", "BF16", 27, 27, ("DT_BFLOAT16",)), DType("float8_e4m3fn", "float", 8,
        "float8_e4m3fn", "F8_E4M3", "Float8E4M3FN", "FLOAT8_E4M3FN", 35, 36),
        DType("float8_e5m2", "float", 8, "float8_e5m2", "F8_E5M2", "Float8E5M2", "FLOAT8_E5M2", 34,
            35), DType("float8_e4m3fnuz", "float", 8, "float8_e4m3fnuz", "F8_E4M3FNUZ"),
            DType("float8_e5m2fnuz", "float", 8, "float8_e5m2fnuz", "F8_E5M2FNUZ"),
            DType("float8_e4m3b11fnuz", "float", 8, "float8_e4m3b11fnuz"),
            DType("float8_e4m3", "float", 8, "float8_e4m3"), DType("float8_e3m4", "float", 8,
                "float8_e3m4"), DType("float8_e8m0fnu", "float", 8, "float8_e8m0fnu", "F8_E8M0",
                None, "FLOAT8_E8M0", 36, 37), DType("hifloat8", "float", 8, None, None, "HiFloat8",
                "HIFLOAT8", 33, 34, ("hif8", "HiFloat8Tensor")), DType("float6_e3m2", "float", 6,
                None, None, None, "FLOAT6_E3M2", 37, 38, ("float6_e3m2fn",)),
                DType("float6_e2m3", "float", 6, None, None, None, "FLOAT6_E2M3", 38, 39,
                    ("float6_e2m3fn",)), DType("float4_e2m1fn_x2", "float", 8, None, None),
                    DType("float4_e2m1", "float", 4, None, None, None, "FLOAT4_E2M1", 39, 40,
                        ("float4_e2m1fn",)), DType("float4_e1m2", "float", 4, None, None, None,
                        "FLOAT4_E1M2", 40, 41), DType("hifloat4", "float", 4, None, None, None,
                        "HIFLOAT4", 41, 42), DType("int64", "int", 64, "int64", "I64", "Int64",
                        "INT64", 8, 9, ("long",)), DType("int32", "int", 32, "int32", "I32",
                        "Int32", "INT32", 7, 3, ("int",)), DType("int16", "int", 16, "int16",
                        "I16", "Int16", "INT16", 5, 6, ("short",)), DType("int8", "int", 8, "int8",
                        "I8", "Int8", "INT8", 3, 2), DType("uint64", "uint", 64, "uint64", "U64",
                        "UInt64", "UINT64", 10, 10), DType("uint32", "uint", 32, "uint32", "U32",
                        "UInt32", "UINT32", 9, 8), DType("uint16", "uint", 16, "uint16", "U16",
                        "UInt16", "UINT16", 6, 7), DType("uint8", "uint", 8, "uint8", "U8",
                        "UInt8", "UINT8", 4, 4, ("byte",)), DType("bool", "bool", 8, "bool",
                        "BOOL", "Bool", "BOOL", 11, 12, ("bool_",)), DType("complex128", "complex",
                        128, "complex128", None, "Complex128", "COMPLEX128", 17, 17, ("cdouble",)),
                        DType("complex64", "complex", 64, "complex64", "C64", "Complex64",
                            "COMPLEX64", 16, 16, ("cfloat",)), DType("complex32", "complex", 32,
                            None, None, None, "COMPLEX32", 32, 33, ("chalf",)),
                            DType("int4", "int", 4, None, None, "Int4", "INT4", 28, 29),
                            DType("int2", "int", 2, None, None, None, "INT2", 30, 31),
                            DType("int1", "int", 1, None, None, None, "INT1"),
                            DType("uint4", "uint", 4, None, None, None, "UINT4"),
                            DType("uint2", "uint", 2, None, None, None, "UINT2", 31, 32),
                            DType("uint1", "uint", 1, None, None, "UInt1", "UINT1", 29, 30),
                            DType("qint32", "int", 32, "int32", None, None, "QINT32", 20, 20),
                            DType("qint16", "int", 16, "int16", None, None, "QINT16", 19, 19),
                            DType("qint8", "int", 8, "int8", None, None, "QINT8", 18, 18),
                            DType("quint16", "uint", 16, "uint16", None, None, "QUINT16", 22, 22),
                            DType("quint8", "uint", 8, "uint8", None, None, "QUINT8", 21, 21),
                            DType("quint4x2", "uint", 8, None), DType("quint2x4", "uint", 8, None),
                            DType("string", "string", 0, None, None, "String", "STRING", 13, 13),
)  # fmt: skip


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
    found = find_dtype(name)
    if found is None:
        raise UsageError(f"unknown element type {name!r}")
    return found


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """The type of a NumPy or ml_dtypes array; UsageError for object arrays, dates and other types
    tensors do not have.
    """
    if dtype.kind in "SU":
        return _SPELLINGS["string"]
    found = _SPELLINGS.get(dtype.name)
    if found is None or found.numpy is None:
        raise UsageError(f"NumPy type {dtype.name!r} is not the type of a tensor")
    return found


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
