# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [("r, z, n = tensor.split(U)", "z, r, n = tensor.split(U)")],
    "reset": [
        (
            "proposed = r * hh",
            "proposed = (r * h) @ self.recurrent[:, 2 * U :] + self.bias[1, 2 * U :]",
        )
    ],
    "held": [("h = torch.where(mask[t][:, None], new, h)", "h = new")],
    "weighted": [("/ sample_weight.sum()", "/ (ids != 0).sum()")],
    "rooted": [("(mean_square.sqrt() + 1e-3)", "(mean_square + 1e-3).sqrt()")],
}
