# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of resnet."""

FAULTS = {
    "pool_edge": [('(0, 0, 1, 1, 1, 1), value=float("-inf")', '(0, 0, 0, 1, 0, 1), value=float("-inf")')],
    "bn_var": [("x.var((0, 1, 2), correction=0)", "x.var((0, 1, 2))")],
    "where_stride": [("first, second = 1, stride", "first, second = stride, 1")],
    "decay_set": [("decayed = tree[key].ndim > 1", 'decayed = not key.endswith("bias")')],
    "warm_start": [("(count + 1) / warm", "count / warm")],
}
