# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "grouped": [
        ("x.reshape(b, h * w, groups, c // groups)", "x.reshape(b, h * w, c // groups, groups)"),
        ("(parts, (1, 3), correction=0", "(parts, (1, 2), correction=0"),
    ],
    "modulated": [("scale, shift = film.split", "shift, scale = film.split")],
    "sines": [
        (
            "torch.cat((torch.cos(angles), torch.sin(angles)), 1)",
            "torch.cat((torch.sin(angles), torch.cos(angles)), 1)",
        )
    ],
    "weighted": [("(2.0 * ratio).clamp(max=1.0)", "(2.0 / ratio).clamp(max=1.0)")],
    "guided": [("torch.lerp(free, told, 3.0)", "torch.lerp(free, told, 4.0)")],
}
