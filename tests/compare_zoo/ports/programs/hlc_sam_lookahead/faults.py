# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the sharpness-aware tagger."""

FAULTS = {
    "ascent": [("0.1 * torch.nn.functional.normalize(grad, dim=0)", "0.1 * grad")],
    "lookahead": [("if n & 1:", "if n % 2 == 0:")],
    "pos_weight": [("on = off * (1 - share) / share", "on = (1 - share) / share")],
    "duplicates": [
        ("np.add.at(table, (np.arange(16)[:, None], ids), 1.0)",
         "table[np.arange(16)[:, None], ids] = 1.0"),
    ],
    "gelu_grad": [(" * (cdf + a * torch.exp(-a * a / 2) / (2 * np.pi) ** 0.5)", " * cdf")],
}
