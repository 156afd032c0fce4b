# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "sign": [("@ COS_C - SIN_T", "@ COS_C + SIN_T")],
    "tied": [('x @ w["words"].t()', 'x @ w["decoder"].t()')],
    "pad_row": [(", padding_idx=PAD", "")],
    "accumulated": [("(each * shares).sum()", "each.mean()")],
    "schedule": [("(STEPS - step) / (STEPS - RISE)", "(STEPS - step) / STEPS")],
}
