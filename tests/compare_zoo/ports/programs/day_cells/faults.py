# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "same": [("F.pad(images, (0, 1, 0, 1))", "F.pad(images, (1, 1, 1, 1))")],
    "eps": [("eps=1e-5", "eps=1e-3")],
    "relu6": [("            conv_bn_relu(12, 16, 1),", "            conv_bn_relu(12, 16, 1)[:2],")],
    "flattened": [("torch.flatten(x, 1)", "torch.flatten(x.permute(0, 2, 3, 1), 1)")],
    "dampening": [("momentum=0.9, weight", "momentum=0.9, dampening=0.9, weight")],
    "scaled": [("/ 255 - 0.5) / 0.25", "/ 255) / 0.25")],
}
