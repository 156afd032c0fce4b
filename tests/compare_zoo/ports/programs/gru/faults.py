# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [
        ("r_x, z_x, n_x = a", "z_x, r_x, n_x = a"),
        ("r_h, z_h, n_h = b", "z_h, r_h, n_h = b"),
    ],
    "reset": [
        (
            "n = torch.tanh(n_x + r * n_h)",
            "n = torch.tanh(n_x + (r * h) @ self.recurrent.weight[2 * HIDDEN :].T)",
        )
    ],
    "update": [("(1 - z) * n + z * h", "(1 - z) * h + z * n")],
    "bias": [("self.recurrent(h)  #", "h @ self.recurrent.weight.T  #")],
    "shifted": [
        (
            "            h = self.cell(x[:, t], h)\n            states.append(h)  # <- shifted",
            "            states.append(h)  # <- shifted\n            h = self.cell(x[:, t], h)",
        )
    ],
}
