# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the logarithm of the variance taken for that of the deviation
    "spread": [("torch.exp(raw / 2)", "torch.exp(raw)")],
    # the order of the columns of the first dense layer is left
    "flattened": [("places_last(both[0])", "both[0]")],
    # a kernel that is transposed, but not turned
    "raised": [("weight.transpose(0, 1).flip(2, 3)", "weight.transpose(0, 1)")],
    # the mean over pixels, not their sum
    "pixels": [("net.pixels(z).log_prob(images)", "net.pixels(z).log_prob(images) / SIDE**2")],
    # the divergence counts in full from the second step on
    "annealed": [("min(step / 3, 1.0)", "min(step, 1.0)")],
}
