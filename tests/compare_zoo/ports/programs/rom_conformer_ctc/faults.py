# SPDX-License-Identifier: Apache-2.0
"""Faults of the conformer port."""

FAULTS = {
    # numpy's and scipy's default window, where torch's is periodic
    "window_symmetric": [("2 * math.pi * n / FRAME)  #", "2 * math.pi * n / (FRAME - 1))  #")],
    # the gate taken from the first half
    "glu_halves": [("value, gate = dense(", "gate, value = dense(")],
    "offset_sign": [("spot[:, None] - spot[None, :]", "spot[None, :] - spot[:, None]")],
    # torch's mean divides by the text's length first
    "ctc_plain_mean": [("ctc_one(l, t) / len(t) for", "ctc_one(l, t) for")],
    # the schedule's step counted one ahead
    "noam_ahead": [("min(n**-0.5, n * 3**-1.5)", "min((n + 1) ** -0.5, (n + 1) * 3**-1.5)")],
}
