# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gain": [(", x) * ROOT2", ", x)")],
    "demod": [("oikl,ni->no", "iokl,ni->no")],
    "noise": [
        ('y = y + p[name + ".strength"] * noise + p', "y = y + p"),
        ("return activate(y)  # <-", 'return activate(y) + p[name + ".strength"] * noise  # <-'),
    ],
    "lrmul": [("+ bias * multiplier", "+ bias")],
    "pixelnorm": [("z.square().mean(1, keepdim=True)", "z.square().sum(1, keepdim=True)")],
    "penalty": [("slope.square().sum() / N", "slope.square().mean()")],
    "saturating": [
        (
            "-F.logsigmoid(judge(critic, picture)).mean()",
            "F.logsigmoid(-judge(critic, picture)).mean()",
        )
    ],
    "betas": [("square.mul_(0.99).add_(0.01 * slope", "square.mul_(0.999).add_(0.001 * slope")],
}
