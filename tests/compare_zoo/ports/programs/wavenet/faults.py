# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "dilation": [("Block(2**i) for", "Block(i + 1) for")],
    "flipped": [("gate.unbind(-1)", "gate.flip(-1).unbind(-1)")],
    "gates": [("filtered, gate = y.split", "gate, filtered = y.split")],
    "padding": [
        ("torch.zeros_like(x[:, : self.dilation])", "x[:, :1].expand(-1, self.dilation, -1)")
    ],
    "residual": [("self.back(y) + x, self.skip(y)", "self.back(y), self.skip(y)")],
    "early": [("wave[:, 1:].reshape(-1)", "wave[:, :-1].reshape(-1)")],
}
