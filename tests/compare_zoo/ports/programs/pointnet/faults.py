# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("variance + 1e-5", "variance + 1e-3")],
    "identity": [("return m + torch.eye(self.size)", "return m")],
    "transform": [('"bnc,bcd->bnd"', '"bnc,bdc->bnd"')],
    "relu": [("Dense(32, 48, rectify=False)", "Dense(32, 48)")],
    "pool": [("features.amax(dim=1)", "features.mean(dim=1)")],
    "regulariser": [("gap.square().sum((1, 2)).sqrt().mean()", "gap.square().sum((1, 2)).mean()")],
    "sphere": [("square.amax(1, keepdim=True).sqrt()", "square.mean(1, keepdim=True).sqrt()")],
    "correction": [("v_hat = v / (1 - 0.999**t)", "v_hat = v")],
}
