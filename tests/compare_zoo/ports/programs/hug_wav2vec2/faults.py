# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "weight_norm": [("sum(dim=(0, 1), keepdim=True)", "sum(dim=(1, 2), keepdim=True)")],
    "trimmed": [("(TAPS // 2, TAPS // 2 - 1)", "(TAPS // 2 - 1, TAPS // 2)")],
    "zeroed": [("x = x.masked_fill(silent[..., None], 0.0)  # <- zeroed\n        ", "")],
    "blank": [("target_sizes, blank=BLANK)", "target_sizes)")],
    "frozen": [(' if not n.startswith("front.")]', "]")],
}
