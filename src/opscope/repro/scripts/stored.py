# SPDX-License-Identifier: Apache-2.0
"""The part of the scripts of torch that reads and writes tensors in files.

The format is that of safetensors (https://github.com/huggingface/safetensors): 8 bytes, the length
of the header; the header, a JSON object that says the type, shape and place of each tensor; their
bytes. script.py writes what stands below the mark into the generated scripts, which have no second
file.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import torch

# --- stored ---
# The file's names of element types -> torch's.
STORED_TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}


def places_of(data: Any) -> dict[str, Any]:
    """Type, shape, first byte and end of each tensor of a file, by its key; ValueError for a file
    that is damaged.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("a file of tensors is cut short")
    places = {}
    for key, row in json.loads(bytes(data[8 : 8 + length])).items():
        if key != "__metadata__":
            first, end = (8 + length + int(each) for each in row["data_offsets"])
            if not 8 + length <= first <= end <= len(data):
                raise ValueError("a tensor lies outside of its file")
            places[key] = (str(row["dtype"]), [int(each) for each in row["shape"]], first, end)
    return places


def read_tensors(path: Any) -> dict[str, Any]:
    """The tensors of a file by their keys, which share its bytes; ValueError for a file that is
    damaged, TypeError for an element type that torch does not have.
    """
    data, tensors = bytearray(Path(path).read_bytes()), {}
    for key, (name, shape, first, end) in places_of(data).items():
        dtype = getattr(torch, STORED_TYPES.get(name, ""), None)
        if dtype is None:
            raise TypeError("no element type " + ascii(name))
        count = (end - first) // torch.empty(0, dtype=dtype).element_size()
        tensors[key] = (
            torch.frombuffer(data, dtype=dtype, count=count, offset=first)
            if count
            else torch.empty(0, dtype=dtype)
        ).reshape(shape)
    return tensors


def write_tensors(path: Any, tensors: dict[str, Any]) -> None:
    """Write tensors, none of them complex, by their keys; the widest first, so that all lie at
    multiples of their width.
    """
    names = {getattr(torch, known, None): name for name, known in STORED_TYPES.items()}
    held = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    header, parts, first = {}, [], 0
    for key, value in sorted(held.items(), key=lambda item: -item[1].element_size()):
        size = value.numel() * value.element_size()
        place = [first, first + size]
        header[key] = {
            "dtype": names[value.dtype],
            "shape": list(value.shape),
            "data_offsets": place,
        }
        parts.append(ctypes.string_at(value.data_ptr(), size) if size else b"")
        first += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    Path(path).write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *parts]))
