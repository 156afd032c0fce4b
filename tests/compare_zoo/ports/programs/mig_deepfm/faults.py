# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the fields share the first rows of the one table
    "offsets": [("torch.tensor([0, *SIZES[:-1]]).cumsum(0)", "torch.tensor([0, *SIZES[:-1]])")],
    # mean over the padded length
    "bag": [("counts.sum(1, keepdim=True)", "items.shape[1]")],
    "square": [("0.5 * (of_sum - of_squares)", "(of_sum - of_squares)")],
    # Keras counts the momentum the other way round
    "statistics": [
        ('0.9 * moving["mean"] + 0.1 * mean', '0.1 * moving["mean"] + 0.9 * mean'),
        ('0.9 * moving["variance"] + 0.1 * unbiased', '0.1 * moving["variance"] + 0.9 * unbiased'),
    ],
    "accumulator": [("torch.full_like(p, 0.1)", "torch.zeros_like(p)")],
}
