# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "groups": [
        ("return mixture.flatten(2)", "return mixture.transpose(2, 3).flatten(2)"),
    ],
    "norm_order": [
        ("= paired(gain)", "= gain"),
    ],
    "theta": [("THETA = 1000000.0", "THETA = 10000.0")],
    "decay": [('0.0 if name.endswith("_g") else 0.1', "0.1")],
    "tokens": [("count += kept[:, 1:].sum()", "count += kept.sum()")],
}
