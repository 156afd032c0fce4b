# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "curvature": [("wc * jet.dxx - w**2 * s", "wc * jet.dxx - w * s")],
    "frequency": [("frequencies = (2.0, 2.0, 1.0)", "frequencies = (2.0, 2.0, 2.0)")],
    "viscosity": [("nu=0.05", "nu=0.05 / pi")],
    "advected": [("momentum = u.value * u.dx", "momentum = u.value.detach() * u.dx")],
    "shape": [("(start + torch.sin(pi * x0))", "(start - torch.sin(pi * x0))")],
    "walls": [("walls.square().sum() / n", "walls.square().mean()")],
}
