# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "distance": [("book) - offset", "book)")],
    "commitment": [("codebook_loss + 0.25 * commitment", "0.25 * codebook_loss + commitment")],
    "straight": [("return gradient, None", "return None, gradient")],
    "final": [("(x + h).clamp(min=0)", "x + h")],
    "flipped": [("kernel.flip(0, 1)", "kernel")],
    "bias": [('return y + w[f"{name}/bias"]  #', "return y  #")],
    "variance": [("(data - data.mean()).square().mean()", "data.square().mean()")],
    "betas": [("betas=(0.9, 0.999)", "betas=(0.5, 0.9)")],
}
