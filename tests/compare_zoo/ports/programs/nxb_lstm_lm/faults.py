# SPDX-License-Identifier: Apache-2.0
"""Faults of the language model on its own cells."""

FAULTS = {
    "forget_bias": [("bf - FORGET_BIAS, bo]", "bf, bo]")],
    "carried_layer": [("State(s.c.detach(), s.h.detach()) for s in states]",
                       "State(states[0].c.detach(), states[0].h.detach()) for s in states]")],
    "untied_gradient": [("@ table.t() +", "@ table.detach().t() +")],
    "clip_scope": [("[shrink(counted) for _ in grads]", "[shrink([g]) for g in counted]")],
    "chunk_stride": [("at = k * WINDOW", "at = k * (WINDOW - 1)")],
}
