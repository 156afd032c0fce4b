# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of pose."""

FAULTS = {
    "residual": [("(a + side).clamp_min(0)", "a.clamp_min(0) + side")],
    "pairs": [("turned = turned.index_select(1, MIRROR)", "turned = turned")],
    "mirror": [("turned = torch.flip(turned, [-1])", "turned = turned.clone()")],
    "quarter": [("torch.stack([at(0, 1) - at(0, -1), at(1, 0) - at(-1, 0)], dim=2)",
                 "torch.stack([at(1, 0) - at(-1, 0), at(0, 1) - at(0, -1)], dim=2)")],
    "sigmas": [("var = (2 * FALLOFF).square()", "var = 2 * FALLOFF.square()")],
}
