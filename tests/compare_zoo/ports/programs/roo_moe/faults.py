# SPDX-License-Identifier: Apache-2.0
"""Faults for the mixture of experts pair."""

FAULTS = {
    # second choices are seated from slot 0 again, on top of the first choices
    "slot_overlap": [
        ("slot2 = mask2.cumsum(0) - mask2 + mask1.sum(0)", "slot2 = mask2.cumsum(0) - mask2"),
    ],
    # the two gates are not renormalised to sum to one
    "gates_raw": [
        ("total = g1 + g2", "total = 1.0"),
    ],
    # the balancing loss gives the router no gradient
    "aux_detached": [
        ("balance = hp.E * (gates.mean(0) * mask1.mean(0)).sum()", "balance = hp.E * (gates.detach().mean(0) * mask1.mean(0)).sum()"),
    ],
    # sum over the layers instead of their mean
    "aux_summed": [
        ("x, balance = x + y, balance + extra / hp.L", "x, balance = x + y, balance + extra"),
    ],
    "no_bias_correction": [
        ("fix1, fix2 = 1 - self.b1 ** self.t, 1 - self.b2 ** self.t", "fix1, fix2 = 1.0, 1.0"),
    ],
}
