# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the distillation into a depthwise student."""

FAULTS = {
    "soft_scale": [
        ("0.7 * TEMP ** 2 / 12", "0.7 / 12"),
    ],
    "group_axis": [
        ("dim=(1, 3), keepdim=True, correction=0", "dim=(1, 2), keepdim=True, correction=0"),
    ],
    "dampening": [
        (", alpha=0.8 if it else 1.0", ""),
    ],
    "pad_side": [
        ("pad(x, (0, 0, 1, 1, 1, 1))", "pad(x, (0, 0, 0, 2, 0, 2))"),
    ],
    "rate_decay": [
        ("0.1 * 0.8 ** it * s", "0.1 * s"),
    ],
}
