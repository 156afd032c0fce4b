# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the tied translator."""

FAULTS = {
    "tied": [
        ("copies[2].grad + copies[1].grad + copies[0].grad",
         "copies[2].grad + copies[1].grad"),
    ],
    "memory_mask": [("mem, 4, hide)", "mem, 4, 0 * hide)")],
    "smoothing": [("0.1 * z.mean(1)", "0.1 * (z.sum(1) - picked) / 18")],
    "residual": [('y = y + attend(p, "dec.self_attn"', 'y = z + attend(p, "dec.self_attn"')],
    "warmup": [("(t / 3 if t < 3", "((t - 1) / 3 if t < 3")],
}
