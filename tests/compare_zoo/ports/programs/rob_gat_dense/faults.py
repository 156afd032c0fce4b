# SPDX-License-Identifier: Apache-2.0
"""Faults of the dense graph attention net."""

FAULTS = {
    "edges_reversed": [("counts[target, source] += 1", "counts[source, target] += 1")],
    "edges_once": [("counts[target, source] += 1", "counts[target, source] = 1")],
    "momentum_meaning": [
        ("self.mean = 0.7 * self.mean + 0.3 * mean", "self.mean = 0.3 * self.mean + 0.7 * mean"),
        ("self.var = 0.7 * self.var + 0.3 * var", "self.var = 0.3 * self.var + 0.7 * var"),
    ],
    "decay_everywhere": [('return {"a": 5e-2}.get(layer, 0.0)', "return 5e-2")],
    "target_gradient": [(".softmax(-1).detach()", ".softmax(-1)")],
}
