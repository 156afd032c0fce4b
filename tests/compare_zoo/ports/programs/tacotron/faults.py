# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gates": [("torch.cat([i, g, f, o])", "torch.cat([i, f, g, o])")],
    "centred": [("(0, 0, taps // 2, taps // 2)", "(0, 0, taps - 1, 0)")],
    "backwards": [("x.flip(1)).flip(1)", "x.flip(1))")],
    "prenet": [
        ("        x = torch.relu(x @ kernel)", "        x = torch.relu(x) @ kernel"),
    ],
    "mask": [
        (
            'torch.softmax(torch.where(there, score, float("-inf")), dim=-1)',
            "torch.softmax(score, dim=-1) * there",
        )
    ],
    "teacher": [("F.pad(targets, (0, 0, 1, 0))[:, :-1]", "targets")],
    "cumulative": [("total = total + alignment", "total = alignment")],
    "last": [("F.pad(spoken, (0, 1))[:, 1:]", "spoken")],
    "clipped": [("grad * torch.clamp(0.1 / (norm + 1e-6), max=1.0)", "grad.clamp(-0.1, 0.1)")],
}
