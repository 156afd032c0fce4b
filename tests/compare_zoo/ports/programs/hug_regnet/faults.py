# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "layout": [("pixels.movedim(2, 0)", "pixels.reshape(3, 16, 16)")],
    "unloaded": [('    (r"\\.downsample\\.", ".shortcut."),\n', "")],
    "momentum": [("module.momentum = 0.3", "module.momentum = 0.1")],
    "strides": [("    downsample_in_first_stage=False,\n", "")],
    "average": [("(0.9))\nema.update_parameters(model)", "(0.9))")],
}
