# SPDX-License-Identifier: Apache-2.0
"""Calls that one call speaks for: of what is made with invented inputs, one of each signature
judges the kernel.

A signature is the operator, its arguments (floats by sign and by whether they are 0 or 1) and, of
each tensor, slot, type, shape, strides and device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opscope.run.query import sql

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

Key = tuple[int, int]
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+", re.IGNORECASE)
_INVENTED = """
WITH kept AS (SELECT DISTINCT process, version FROM tensors WHERE value.shard IS NOT NULL),
told AS (SELECT DISTINCT process, "index" FROM judgements)
SELECT t.process AS process, t."index" AS at,
       md5(string_agg(concat_ws('|', t.io, t.slot, t.dtype, t.shape, t.stride, t.device, t.layout,
       t.tensor_class), ';'
                      ORDER BY t.io, t.slot)) AS form
FROM tensors AS t LEFT JOIN kept AS k ON k.process = t.process AND k.version = t.version
GROUP BY t.process, t."index"
HAVING bool_or(t.io = 'input' AND t.value.shard IS NULL AND k.version IS NULL)
   AND (t.process, t."index") NOT IN (SELECT (process, "index") FROM told)
"""


def spoken_for(run: Run, calls: Sequence[Call]) -> dict[Key, Key]:
    """For each call whose inputs would be invented the earlier call of the same signature; the
    first of each is not in it.
    """
    forms = {(row["process"], row["at"]): row["form"] for row in sql(run, _INVENTED)}
    whole = {(call.process, call.index): call for call in calls}
    first: dict[object, Key] = {}
    found: dict[Key, Key] = {}
    for key, call in whole.items():
        form = forms.get(key)
        if form is None:
            continue
        forward = (
            None if call.forward_index is None else whole.get((call.process, call.forward_index))
        )
        beneath = (
            None
            if forward is None or call.level == "operator"
            else (_said(forward), forms.get((forward.process, forward.index)))
        )
        leader = first.setdefault((call.op, call.phase, _said(call), form, beneath), key)
        if leader != key:
            found[key] = leader
    return found


def _said(call: Call) -> str:
    return _FLOAT.sub(lambda number: _kind(float(number[0])), call.args or "")


def _kind(number: float) -> str:
    return f"{number:g}." if number in (0.0, 1.0, -1.0) else "-x" if number < 0 else "x"
