# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # a norm for each output channel, as weight_norm has it by default
    "weight_norm": [
        ("v.square().sum((0, 1), keepdim=True)", "v.square().sum((1, 2), keepdim=True)")
    ],
    # the other end loses a frame
    "trimmed": [("(0, 0, WIDTH // 2, WIDTH // 2 - 1)", "(0, 0, WIDTH // 2 - 1, WIDTH // 2)")],
    # only the strides are counted, not the kernels
    "lengths": [("((n - 8) // 4 + 1 - 4) // 2 + 1", "min(n // 8, x.shape[1])")],
    "per_target": [("one / len(text)", "one")],
    # divided by the root mean square only
    "normalized": [("raw = raw - raw.mean()", "raw = raw.clone()")],
}
