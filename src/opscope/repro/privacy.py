# SPDX-License-Identifier: Apache-2.0
"""A case whose values are replaced by others of equal statistics, so that it can be handed on
without the data in it.
"""

from __future__ import annotations

import math

import msgspec

from opscope.repro.build import Material
from opscope.repro.case import CaseTensor
from opscope.repro.synthesis import synthesise
from opscope.repro.tensorfile import Entry
from opscope.run.dtypes import dtype_of
from opscope.run.schema import Tensor

NOTE = (
    "values were replaced by SYNTHETIC ones with the recorded counts, extremes, mean and "
    "norm: none of the data is in this folder;"
    " a failure that does not show proves nothing"
)


def without_data(material: Material) -> Material:
    """The material with synthetic inputs and without recorded outputs; states of generators stay.

    Raises MissingValueError for an input whose statistics were not recorded.
    """
    recorded = [
        row for row in material.case.tensors if row.key is not None and row.values == "recorded"
    ]
    made = {row.key: _synthetic(row) for row in recorded}
    rows = tuple(
        msgspec.structs.replace(row, values="synthesised") if row in recorded else row
        for row in material.case.tensors
    )
    outputs = tuple(msgspec.structs.replace(row, key=None) for row in material.case.outputs)
    case = msgspec.structs.replace(
        material.case, tensors=rows, outputs=outputs, warnings=(*material.case.warnings, NOTE)
    )
    return Material(case, tuple(made.get(entry.key, entry) for entry in material.inputs), ())


def _synthetic(row: CaseTensor) -> Entry:
    facts = Tensor(
        process=0, index=0, io="input", slot=row.slot, dtype=row.dtype, shape=row.shape, **row.stats
    )
    flat, _ = synthesise(facts, math.prod(row.kept))
    return Entry(
        key=row.key or row.slot,
        dtype=dtype_of(row.dtype),
        shape=row.kept,
        load=lambda: flat.reshape(row.kept),
    )
