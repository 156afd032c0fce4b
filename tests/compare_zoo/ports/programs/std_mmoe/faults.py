# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "offsets": [('theta[f"table{i}"][fields[:, i]]', 'theta[f"table{i}"][fields[:, i] - 1]')],
    "slope": [
        (
            'y.relu() - theta[kind + ".a"][:, None] * (-y).relu()',
            'y.relu() + theta[kind + ".a"][:, None] * (-y).relu()',
        )
    ],
    "gate": [("mixed = mixed.softmax(dim=2)", "mixed = mixed.softmax(dim=0)")],
    "funnel": [
        (
            "F.logsigmoid(z[0]) + F.logsigmoid(z[1])",
            "F.logsigmoid(z[0]).detach() + F.logsigmoid(z[1])",
        )
    ],
    "accumulator": [("torch.full_like(v, 0.1)", "torch.zeros_like(v) + 1e-8")],
}
