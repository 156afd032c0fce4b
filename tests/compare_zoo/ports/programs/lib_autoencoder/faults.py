# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["diffusers"]
FAULTS = {
    "up_order": [("{1 - level}", "{level}")],
    "transposed": [(".squeeze(-1).squeeze(-1)", ".squeeze().t()")],
    "posterior": [("posterior.sample(generator=rng)", "posterior.mode()")],
    "betas": [(", betas=(0.5, 0.9)", "")],
    "range": [(".div(255.0).sub(0.5).mul(2.0)", ".div(255.0)")],
}
