# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "range": [(".clamp(min=0)).tanh()", ".clamp(min=0)).sigmoid()")],
    "slope": [("0.2 * x)", "0.01 * x)")],
    "hinge": [("(1 + bad).clamp(min=0).mean()", "bad.clamp(min=0).mean()")],
    "rate": [("lr=0.1, momentum=0.5", "lr=0.05, momentum=0.5")],
    "sign": [("loss_g = -critic(fake)", "loss_g = critic(fake)")],
}
