# SPDX-License-Identifier: Apache-2.0
"""Parameters that hold golden's numbers in another order."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.tensors import statistic_error
from opscope.compare.side.call_rows import inputs_of
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from opscope.compare.pair.pairing import Pairing

REORDERED = 1e-12  # by which sums of the same numbers in another order are apart; rounded ones more


def turned_parameter(pairing: Pairing, mine: int, theirs: int) -> int:
    """The row of a parameter that holds golden's numbers in another order, as two calls read it in
    the same shape and layout; NONE where there is none.
    """
    tensors, other = pairing.target.tensors, pairing.golden.tensors
    for row, partner in product(inputs_of(pairing.target, mine), inputs_of(pairing.golden, theirs)):
        alike = (
            tensors.parameter[row]
            and other.parameter[partner]
            and tensors.size[row] > 1
            and tensors.shape[row] == other.shape[partner]
            and tensors.stride[row] == other.stride[partner]
            and tensors.dtype[row] == other.dtype[partner]
        )
        if not alike or not (tensors.digested[row] and other.digested[partner]):
            continue
        error = statistic_error(tensors, other, np.array([row]), np.array([partner]))[0]
        if tensors.digest[row] != other.digest[partner] and error <= REORDERED:
            pairs = np.flatnonzero(pairing.rows.target == row)
            return int(pairs[0]) if len(pairs) else NONE
    return NONE
