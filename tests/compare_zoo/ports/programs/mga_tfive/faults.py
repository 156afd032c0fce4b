# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of tfive."""

FAULTS = {
    "two_sided": [("offset = total if delta > 0 else 0", "offset = total if delta < 0 else 0")],
    "qk_scale": [("attn_mask=bias, scale=1.0)", "attn_mask=bias)")],
    "tie_scale": [("(h / math.sqrt(MODEL)) @", "h @")],
    "start_id": [("(1, -1), value=0)", "(1, -1), value=1)")],
    "look_ahead": [("(slope + 0.9 * velocity[name])", "velocity[name]")],
}
