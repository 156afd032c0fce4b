# SPDX-License-Identifier: Apache-2.0
"""The one number that some recordings keep of a tensor, an L1 norm, in the place of its L2 norm,
for comparing two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.run.access import access_of
from opscope.run.query import records

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side
    from opscope.run.protocol import Run


def norms_alone(*runs: Run) -> bool:
    """Whether all of these runs keep such norms."""
    return all(access_of(run).norms for run in runs)


def with_norms(side: Side) -> Side:
    """The side with those norms in column l2norm; a relative error of one is as good as that of the
    other.
    """
    norms = access_of(side.run).norms
    row_norms = np.array(
        [
            norms.get((row.process, row.index, row.io, row.slot), np.nan)
            for row in records(side.run, "tensors")
        ],
        dtype=np.float64,
    )
    tensors = side.tensors
    norm = row_norms[tensors.row]
    known = np.isfinite(norm)
    counts = {
        name: np.where(known, 0, getattr(tensors, name)) for name in ("nan", "pos_inf", "neg_inf")
    }
    return msgspec.structs.replace(
        side,
        tensors=msgspec.structs.replace(
            tensors, l2norm=np.where(known, norm, tensors.l2norm), **counts
        ),
    )
