# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # sine and cosine the other way round, as in the paper
    "sinusoid": [("(angle.cos(), angle.sin())", "(angle.sin(), angle.cos())")],
    # SAME of an even size with stride two pads below and to the right only
    "padding": [
        (
            'conv(params["pool"], kept, stride=2)',
            'conv(params["pool"], kept, stride=2, padding=((0, 1), (0, 1)))',
        )
    ],
    # the kernel of a transposed convolution taken for one that is to be turned
    "flipped": [("value.permute(2, 3, 0, 1)", "value.permute(2, 3, 0, 1).flip(0, 1)")],
    "noising": [("noise * (1 - kept) ** 0.5", "noise * (1 - kept)")],
    # decay and rate exchanged
    "averaged": [("0.8 * e + 0.2 * p", "0.2 * e + 0.8 * p")],
}
