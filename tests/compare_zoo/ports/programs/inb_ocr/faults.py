# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of ocr."""

FAULTS = {
    "resetgate": [("n = torch.tanh(inn + r * hn)",
                   "n = torch.tanh(inn + (r * h) @ wh.chunk(3)[2].T + bh.chunk(3)[2])")],
    "slope": [("torch.maximum(x, LEAK * x)", "torch.maximum(x, 0.01 * x)")],
    "widepool": [("x = F.pad(x, (1, 1), value=-torch.inf)", "x = F.pad(x, (1, 1))")],
    "paper": [("LINE_WIDTH), 255, dtype", "LINE_WIDTH), 0, dtype")],
    "repeats": [("jump = (ext[2:] != BLANK) & (ext[2:] != ext[:-2])", "jump = ext[2:] != BLANK")],
}
