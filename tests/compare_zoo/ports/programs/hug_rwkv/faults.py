# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "mixed": [("(1 - tensor).view(1, 1, -1)", "tensor.view(1, 1, -1)")],
    "first_norm": [('    (r"^ln0\\.", "blocks.0.pre_ln."),\n', "")],
    "shifted_twice": [
        ('{"input_ids": row, "labels": row}', '{"input_ids": row[:-1], "labels": row[1:]}')
    ],
    "rates": [('re.search(r"time_(decay|first)", name)', 're.search(r"time_(decay|bonus)", name)')],
    "schedule": [("0.1 ** (1 / STEPS)", "0.1 ** (1 / (STEPS - 1))")],
}
