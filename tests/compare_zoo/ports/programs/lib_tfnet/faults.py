# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["timm"]
FAULTS = {
    "same": [('    pad_type="same",  # <- same\n', "")],
    "epsilon": [("eps=1e-3, momentum=0.1)", "momentum=0.1)")],
    "depthwise": [("value.permute(2, 3, 0, 1)", "value.permute(2, 3, 1, 0)")],
    "rmsprop": [('opt="rmsproptf"', 'opt="rmsprop"')],
    "evaluated": [("model.eval()  # <- evaluated\n", "")],
}
