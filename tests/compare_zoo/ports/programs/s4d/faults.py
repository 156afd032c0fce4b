# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "hold": [
        ("((a_re - 1) * -decay + a_im * frequency)", "((a_re - 1) * -decay - a_im * frequency)")
    ],
    "before": [
        ("- im * a_im + now[..., None], re * a_im", "- im * a_im, re * a_im"),
        ("        ys.append(", "        re = re + now[..., None]\n        ys.append("),
    ],
    "conjugates": [("2.0 * (re * w_re", "1.0 * (re * w_re")],
    "skip": [('y + p["skip"] * now', 'y + p["skip"]')],
    "activation": [
        (
            "0.5 * y * (1.0 + torch.erf(y * 0.5**0.5))",
            "y * torch.sigmoid(1.702 * y)",
        )
    ],
    "halves": [("value, gate = mixed", "gate, value = mixed")],
    "residual": [("x = x + value * torch.sigmoid(gate)", "x = value * torch.sigmoid(gate)")],
    "slower": [('{"log_step", "log_decay", "frequency"}', '{"log_step", "log_decay"}')],
}
