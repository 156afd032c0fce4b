# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "segments": [('x = x + p["seg"][types[row, col]]', 'x = x + p["seg"][0]')],
    "neighbours": [("same = row[:, None] == row[None, :]", "same = row[:, None] >= row[None, :]")],
    "postnorm": [('norm(f"{i}.ln1", x + out)', 'x + norm(f"{i}.ln1", out)')],
    "tied": [('z = x @ p["word"].T + p["bias"]', 'z = x @ p["word"].detach().T + p["bias"]')],
    "decay": [
        (
            "mu_next = self.b1 * (1 - 0.5 * 0.96 ** ((self.t + 1) * self.psi))",
            "mu_next = mu * (1 - 0.5 * 0.96 ** ((self.t + 1) * self.psi))",
        )
    ],
}
