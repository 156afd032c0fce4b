# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "mindspore"
FAULTS = {
    "eps": [("epsilon=1e-5", "epsilon=1e-2")],
    "gelu": [("approximate=False", "approximate=True")],
    "momentum": [("momentum=0.9", "momentum=0.1")],
    "rate": [("learning_rate=1e-2", "learning_rate=1.02e-2")],
    "sum": [('reduction="mean"', 'reduction="sum"')],
}
OF = "ms_mlp"
