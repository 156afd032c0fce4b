# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "turned": [
        (".transpose(0, 1).flip(2, 3).contiguous()", ".transpose(0, 1).contiguous()"),
        ('g["up0"].flip(2, 3)', 'g["up0"]'),
    ],
    "slope": [("SLOPE = 0.2", "SLOPE = 0.01")],
    "together": [
        (
            "on_real, on_fake = judge(d, real), judge(d, fake)",
            "on_real, on_fake = judge(d, torch.cat((real, fake))).chunk(2)",
        )
    ],
    "betas": [("B1, B2 = 0.5, 0.999", "B1, B2 = 0.9, 0.999")],
    "stale": [("(g_loss)(g, fresh, z)", "(g_loss)(g, d, z)")],
}
