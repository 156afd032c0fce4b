# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "skip": [("conv2d(h, self.w2, self.b2).relu() + h", "conv2d(h, self.w2, self.b2).relu()")],
    "tanh": [("padding=1).tanh()", "padding=1)")],
    "counted": [("torch.where(self.kept, zero, log_scale)", "log_scale")],
    "parity": [("% 2 == keep", "% 2 != keep")],
    "sign": [("total + log_determinant", "total - log_determinant")],
    "squeeze": [("for i in (0, 1) for j in (0, 1)", "for j in (0, 1) for i in (0, 1)")],
    "slope": [("logsigmoid(y) - logsigmoid(-y)", "logsigmoid(y) + logsigmoid(-y)")],
    "warmup": [("(step + 1) / 3)", "step / 3)")],
}
