# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "degree": [("key = sink * (2 * R) + kind", "key = sink")],
    "inverse": [("torch.cat((o, s))", "torch.cat((o, o))")],
    "bases": [('take["coef"].t().contiguous()', 'take["coef"].reshape(2, -1)')],
    "decay": [("beta2_decay=-0.6, ", "")],
    "averaged": [
        (
            "(F.softplus(-right).sum() + F.softplus(wrong).sum()) / (3 * EDGES)",
            "(F.softplus(-right).mean() + F.softplus(wrong).mean()) / 2",
        )
    ],
}
