# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "grid": [("(torch.arange(n) / n).pow(powers)", "torch.linspace(0, 1, n).pow(powers)")],
    "member": [('f"{m}.blocks.{n}.{name}" for m', 'f"0.blocks.{n}.{name}" for m')],
    "flipped": [("x.flip(0), mask.flip(0)", "x, mask")],
    "detached": [("(y.detach().abs() + target.abs())", "(y.abs() + target.abs())")],
    "betas": [("0.9, 0.99, 0.5", "0.9, 0.9, 0.5")],
}
