# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "scaling": [("R, SCALE = 24, 4, 2.0", "R, SCALE = 24, 4, 8.0")],
    "dropped": [("self.weight + SCALE * (self.b @ self.a)", "self.weight + 0 * (self.b @ self.a)")],
    "bias": [("F.linear(x, merged, self.bias)", "F.linear(x, merged)")],
    "gelu": [("F.gelu(self.up(x))", "F.relu(self.up(x))")],
    "eps": [("self.beta, 1e-5)", "self.beta, 1e-2)")],
    "order": [("SCALE * (self.b @ self.a)", "SCALE * (self.b.flip(1) @ self.a)")],
}
