# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "temperature": [("torch.exp(self.log_temperature)", "self.log_temperature")],
    "oneway": [("similar.log_softmax(0)", "similar.log_softmax(1)")],
    "halved": [("-0.5 * (by_image", "-1.0 * (by_image")],
    "axis": [("F.normalize(self.see(images), dim=1)", "F.normalize(self.see(images), dim=0)")],
    "norm": [
        ("F.normalize(self.see(images), dim=1)", "F.normalize(self.see(images), p=1, dim=1)"),
        ("F.normalize(self.read(texts), dim=1)", "F.normalize(self.read(texts), p=1, dim=1)"),
    ],
}
