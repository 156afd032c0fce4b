# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "diffusion"
FAULTS = {
    "times": [("[torch.cos(args), torch.sin(args)]", "[torch.sin(args), torch.cos(args)]")],
    "groups": [("CHANNELS, GROUPS, STEPS = 8, 4, 50", "CHANNELS, GROUPS, STEPS = 8, 2, 50")],
    "chunks": [("scale, shift = self", "shift, scale = self")],
    "one": [("(1 + scale)", "scale")],
    "scale": [("/ math.sqrt(c)", "/ c")],
    "mixed": [
        (
            "sqrt_one_minus_ab = torch.sqrt(1 - alphas_cumprod).float()",
            "sqrt_one_minus_ab = (1 - alphas_cumprod).float()",
        )
    ],
    "clipped": [("x0.clamp(-1, 1)", "x0.clamp(-2, 2)")],
}
