# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "offsets": [
        (
            'tables = w["levels"].split(LEVELS, dim=0)',
            'tables = [w["levels"][:levels] for levels in LEVELS]',
        )
    ],
    "heads": [("weight.T.reshape(WIDTH, HEADS, SIZE)", "weight.T.reshape(WIDTH, SIZE, HEADS).mT")],
    "unnormed": [
        (
            '        x = normalise(x, w[f"{n}.before_gain"], w[f"{n}.before_bias"])',
            '        x = x * w[f"{n}.before_gain"] + w[f"{n}.before_bias"]',
        )
    ],
    "gated": [("value * gate.clamp(min=0)", "value.clamp(min=0) * gate")],
    "head": [('w["final_bias"]).relu()', 'w["final_bias"])')],
    "beta": [("size.square() / (2 * beta)", "size.square() / 2")],
    "spread": [("std(0, correction=0)", "std(0)")],
    "untouched": [
        ('name.split(".")[-1] in DECAYED else', 'name.split(".")[-1] not in DECAYED else')
    ],
}
