# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "llama"
FAULTS = {
    "eps": [("eps=1e-5", "eps=1e-3")],
    "theta": [("theta=10000.0", "theta=500000.0")],
    "rotation": [("[-second, first]", "[second, -first]")],
    "pairing": [("return rows.reshape(weight.shape)", "return weight")],
    "scale": [("/ math.sqrt(HEAD)", "/ math.sqrt(DIM)")],
    "gate": [("F.silu(self.w1(x)) * self.w3(x)", "F.silu(self.w3(x)) * self.w1(x)")],
    "causal": [("diagonal=1", "diagonal=2")],
}
