# SPDX-License-Identifier: Apache-2.0
"""Products of float32 that a device computes with fewer bits than the type has, where torch's
settings let it: TF32 on CUDA (convolutions by default), HF32 on an Ascend NPU (convolutions by
default).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.compare.side.conditions import PRODUCT, error_kind
from opscope.compare.side.records import tensor_records
from opscope.operators.catalogue import family
from opscope.run.hashes import distinct

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.compare.side.columns import Side

UNIT = 2.0**-11  # of numbers with ten bits behind the point, which both have at least
# Of each kind of device the settings that allow it, of convolutions and recurrent layers, and of
# other products.
SETTINGS = {
    "cuda": ("backends.cudnn.allow_tf32", "backends.cuda.matmul.allow_tf32"),
    "npu": ("npu.conv.allow_hf32", "npu.matmul.allow_hf32"),
}


def reduced_products(side: Side) -> Bools:
    """Which calls of a side are such products. A run that does not say its settings has none."""
    reduced = np.zeros(len(side.calls), dtype=np.bool_)
    rows = _products(side)
    named = _settings(side, rows)
    if any(named):
        layered = side.which(side.calls.op, _is_layer)
        calls = distinct(side.tensors.call[rows])
        reduced[calls] = np.where(layered[calls], bool(named[0]), bool(named[1]))
    return reduced


def reducing_settings(side: Side) -> list[str]:
    """Names below `torch` of the settings by which products of a side are shortened."""
    return [name for name in _settings(side, _products(side)) if name]


def _products(side: Side) -> Ints:
    """Rows that products of float32 make; none of a run whose settings shorten nothing."""
    flags = _flags(side)
    if not any(flags.get(name) for names in SETTINGS.values() for name in names):
        return np.empty(0, dtype=np.int64)
    products = side.which(side.calls.op, lambda op: error_kind(op) == PRODUCT) & side.calls.leaf
    single = side.which(side.tensors.dtype, lambda dtype: dtype == "float32")
    return np.flatnonzero(side.tensors.output & single & products[side.tensors.call])


def _settings(side: Side, rows: Ints) -> tuple[str, str]:
    """The names of the settings that are on for the device of the first of these rows, of layers
    and of other products, "" for one that is off.
    """
    if not len(rows):
        return "", ""
    device = next(iter(tensor_records(side, rows[:1]).values())).device or ""
    layers, others = SETTINGS.get(device.partition(":")[0], ("", ""))
    flags = _flags(side)
    return layers if flags.get(layers) else "", others if flags.get(others) else ""


def _flags(side: Side) -> dict[str, Any]:
    """torch's settings in the first process; one program has them alike."""
    flags = [process.torch.get("flags") for process in side.run.processes[:1]]
    return flags[0] if flags and isinstance(flags[0], dict) else {}


def _is_layer(op: str) -> bool:
    """Whether cuDNN, or CANN's convolutions, compute it."""
    return any(word in family(op) for word in ("conv", "rnn", "lstm", "gru"))
