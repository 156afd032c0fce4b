# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "places": [
        (
            'old["fc.weight"].view(2 * BASE, 2, 2, N_LATENT).permute(3, 1, 2, 0)',
            'old["fc.weight"].view(2, 2, 2 * BASE, N_LATENT).permute(3, 0, 1, 2)',
        )
    ],
    "statistics": [
        ("x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)", "x.mean((0, 1, 2)), x.var((0, 1, 2))")
    ],
    "turned": [("kernel.flip(2, 3).permute(2, 3, 0, 1)", "kernel.permute(2, 3, 0, 1)")],
    "slope": [("self.slope = 0.1", "self.slope = 0.2")],
    "sigma": [("return self.matrix / sigma", "return self.matrix / sigma.detach()")],
    "iterated": [("            self.u.copy_(u)  # <- iterated\n", "")],
    "pooled": [("h = h.sum((1, 2))", "h = h.mean((1, 2))")],
    "projected": [("false = judge(painted, y)", "false = judge(painted, labels)")],
    "hinge": [("(1 + false).clamp(min=0).mean()", "(1 + false.clamp(min=0)).mean()")],
    "momentum": [("betas = (0.0, 0.9)", "betas = (0.9, 0.999)")],
    "buffers": [('share = 1.0 if "running" in name else 0.2', "share = 0.2")],
}
