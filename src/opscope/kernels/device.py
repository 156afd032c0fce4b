# SPDX-License-Identifier: Apache-2.0
"""Statistics and digest of a tensor on whatever device it lies, by plain tensor operators; nothing is fetched, nothing waits.

Nothing here imports a framework: the torch module is handed in. The answer equals kernels.statistics, but for the last bits of mean
and l2norm, and the last bit of a complex element's magnitude (torch's square root need not round to the nearest). The device needs
float64 and int64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from opscope.kernels.reference import BLOCK_WORDS, GOLDEN, KEYS, LENGTH, Statistics, near_limit

WORDS = 15
BLOCK_BYTES = 8 * BLOCK_WORDS
LOW = 0xFFFFFFFF
TOP = -(2**63)
UNSIGNED = {"uint16": ("int16", 0xFFFF), "uint32": ("int32", LOW)}


def on_device(torch: Any, tensor: Any, *, digest: bool = True, keys: Any = None) -> Any:
    """Columns size to digest of a strided tensor as int64[15] on its device, doubles as their bits; `from_device` reads them.

    Meta tensors answer a meta row. `keys` is what keys_on answers for the device, for callers that measure often. Raises TypeError
    for a type that is no number.
    """
    with torch.no_grad():
        tensor = tensor.detach().resolve_conj().resolve_neg()
        name = str(tensor.dtype).removeprefix("torch.")
        zero = torch.zeros((), dtype=torch.int64, device=tensor.device)
        size = torch.full_like(zero, tensor.numel())
        limit = near_limit(np.dtype(name))
        if tensor.numel() == 0:
            found = [zero] * (WORDS - 1)
        elif is_integer(name):
            found = integer_columns(torch, tensor, name, size)
        else:
            found = float_columns(torch, tensor, size, limit)
        found.append(digest_of(torch, tensor, keys_on(torch, tensor.device) if keys is None else keys) if digest else zero)
        return torch.stack(found)


def from_device(words: Any, dtype: Any, *, digest: bool = True) -> Statistics:
    """The record of one row that on_device made, once it is on the host; `dtype` is the tensor's."""
    row = [int(word) for word in words]
    name = str(dtype).removeprefix("torch.")
    counts, floats, ends = row[:8], row[8:12], row[12:14]
    values: list[float | None] = [None] * 4
    exact: list[int | None] = [None] * 2
    if counts[0] > sum(counts[1:4]):
        values = [struct.unpack("<d", struct.pack("<q", bits))[0] for bits in floats]
        if is_integer(name) and (name != "uint64" or ends[1] >= 0):
            exact = list(ends)
    return Statistics(*counts, *values, *exact, digest=row[14] & (2**64 - 1) if digest else None)  # type: ignore[misc]


def is_integer(name: str) -> bool:
    return name == "bool" or name.startswith(("int", "uint"))


def float_columns(torch: Any, tensor: Any, size: Any, limit: float) -> list[Any]:
    value = magnitudes(torch, tensor)
    finite = torch.isfinite(value)
    kept = torch.where(finite, value, 0.0)
    low, high = torch.where(finite, value, torch.inf).amin() + 0.0, torch.where(finite, value, -torch.inf).amax() + 0.0
    count, zero, neg = finite.sum(), (finite & (value == 0)).sum(), (kept < 0).sum()
    wide = tensor.dtype in (torch.float64, torch.complex128)
    mean, l2norm = moments(torch, kept, count, torch.maximum(low.abs(), high.abs()) if wide else None)
    odd = [torch.isnan(value).sum(), (value == torch.inf).sum(), (value == -torch.inf).sum()]
    counts = [size, *odd, zero, neg, count - zero - neg, (kept.abs() > limit).sum()]
    nothing = torch.zeros_like(size)
    return [*counts, *(number.view(torch.int64) for number in (low, high, mean, l2norm)), nothing, nothing]


def integer_columns(torch: Any, tensor: Any, name: str, size: Any) -> list[Any]:
    """Of uint64 the bits are in int64, and the top one is flipped where order matters."""
    value = integers(torch, tensor, name)
    unsigned = name == "uint64"
    number: Callable[[Any], Any] = (lambda it: unsigned_float(torch, it)) if unsigned else (lambda it: it.to(torch.float64))
    turned = value ^ TOP if unsigned else value
    ends = [end ^ TOP if unsigned else end for end in (turned.amin(), turned.amax())]
    nothing = torch.zeros_like(size)
    zero, neg = (value == 0).sum(), nothing if unsigned else (value < 0).sum()
    floats = [*(number(end) for end in ends), *moments(torch, number(value), size, None)]
    counts = [size, nothing, nothing, nothing, zero, neg, size - zero - neg, nothing]
    return [*counts, *(number.view(torch.int64) for number in floats), *ends]


def integers(torch: Any, tensor: Any, name: str) -> Any:
    if name == "bool":
        return tensor.view(torch.uint8).ne(0).to(torch.int64)
    if name == "uint64":
        return tensor.view(torch.int64)
    if name in UNSIGNED:  # torch has few operators for them
        signed_name, mask = UNSIGNED[name]
        return tensor.view(getattr(torch, signed_name)).to(torch.int64) & mask
    return tensor.to(torch.int64)


def unsigned_float(torch: Any, value: Any) -> Any:
    """float64 of the unsigned number; halved where its top bit is set, the bit shifted out kept in the last place, to round alike."""
    halved = ((value >> 1) & ~TOP) | (value & 1)
    return torch.where(value < 0, halved.to(torch.float64) * 2, value.to(torch.float64))


def magnitudes(torch: Any, tensor: Any) -> Any:
    """As reference.magnitudes, of floating and complex elements."""
    if not tensor.is_complex():
        return tensor.to(torch.float64)
    parts = torch.view_as_real(tensor).to(torch.float64).abs()
    re, im = parts[..., 0], parts[..., 1]
    if tensor.dtype == torch.complex64:
        return torch.sqrt(re * re + im * im)
    larger = torch.maximum(re, im)
    scale = torch.where(larger > 1, 2.0**-600, torch.full_like(larger, 2.0**600))
    scale = torch.where((larger >= 2.0**-400) & (larger <= 2.0**400), 1.0, scale)
    x, y = re * scale, im * scale
    found = (torch.sqrt(x * x + y * y) / scale).clamp(max=float(np.finfo(np.float64).max))
    found = torch.where(torch.isinf(re) | torch.isinf(im), torch.inf, found)
    return torch.where(torch.isnan(re) | torch.isnan(im), torch.nan, found)


def moments(torch: Any, kept: Any, count: Any, largest: Any) -> tuple[Any, Any]:
    """Mean and l2norm; scaled by a power of two where, given the largest magnitude, sums or squares may leave float64."""
    if largest is None:
        return kept.sum() / count, torch.sqrt((kept * kept).sum())
    exponent = torch.where(torch.isfinite(largest), torch.frexp(largest)[1], 0).to(torch.int64)
    down, up = power(torch, -exponent), power(torch, exponent)
    scaled = kept * down[0] * down[1]
    return scaled.sum() / count * up[0] * up[1], torch.sqrt((scaled * scaled).sum()) * up[0] * up[1]


def power(torch: Any, exponent: Any) -> tuple[Any, Any]:
    """Two factors of 2**exponent, made of their bits: a device's pow need not be exact."""
    half = exponent >> 1
    return ((half + 1023) << 52).view(torch.float64), ((exponent - half + 1023) << 52).view(torch.float64)


def digest_of(torch: Any, tensor: Any, keys: Any) -> Any:
    """As reference.digest, the unsigned number's bits in int64."""
    if tensor.numel() == 0:
        return torch.zeros((), dtype=torch.int64, device=tensor.device)
    content = octets(torch, tensor)
    whole = content.numel() // BLOCK_BYTES
    numbers = torch.arange(1, whole + 2, dtype=torch.int64, device=tensor.device)
    total = shares(content[: whole * BLOCK_BYTES].view(torch.int64).view(whole, BLOCK_WORDS), keys, numbers[:whole]).sum()
    rest = content[whole * BLOCK_BYTES :]
    if rest.numel():
        padded = torch.cat([rest, rest.new_zeros(-rest.numel() % 8)]).view(torch.int64)
        total = total + shares(padded.view(1, -1), keys[: padded.numel()], numbers[whole:]).sum()
    return mixed(total + signed(content.numel() * LENGTH))


def octets(torch: Any, tensor: Any) -> Any:
    """The elements' bytes in C order, from an address that words can be read at."""
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.contiguous().reshape(-1)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    return flat.view(torch.uint8)


def keys_on(torch: Any, device: Any) -> Any:
    """The 512 keys of a block on a device."""
    return torch.tensor([signed(key) for key in KEYS], dtype=torch.int64, device=device)


def shares(words: Any, keys: Any, numbers: Any) -> Any:
    """What each row of words, a block with this number counted from 1, adds to the digest."""
    x = words ^ keys
    return mixed(((x & LOW) * ((x >> 32) & LOW)).sum(dim=1) ^ mixed(x.sum(dim=1) + numbers * signed(GOLDEN)))


def mixed(h: Any) -> Any:
    """As reference.mix; `>>` repeats the sign, so those bits are masked away."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = (h ^ ((h >> 33) & 0x7FFFFFFF)) * signed(factor)
    return h ^ ((h >> 33) & 0x7FFFFFFF)


def signed(number: int) -> int:
    """The int64 of a number's lowest 64 bits."""
    return ((number + 2**63) & (2**64 - 1)) - 2**63
