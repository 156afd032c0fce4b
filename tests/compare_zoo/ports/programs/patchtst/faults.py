# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "gelu": [('            activation="gelu",\n', "")],
    "axis": [("            batch_first=True,\n", "")],
    "post": [("norm_first=False", "norm_first=True")],
    "spread": [("x.var(-1, keepdim=True, correction=0)", "x.var(-1, keepdim=True)")],
    "padded": [('(0, EVERY), mode="replicate")', "(0, EVERY))")],
    "channels": [("x = series.transpose(1, 2)", "x = series.reshape(-1, N_CHANNELS, SEEN)")],
    "packed": [('("w_q", "w_k", "w_v")', '("w_k", "w_q", "w_v")')],
    "flattened": [("y.transpose(-2, -1).flatten(1)", "y.flatten(1)")],
    "undone": [
        ("y = (y - self.shift) / (self.gain + 1e-10)", "y = y / (self.gain + 1e-10) - self.shift")
    ],
    "cycle": [
        ('adam.param_groups[0]["lr"] = rate(step)', 'adam.param_groups[0]["lr"] = rate(step + 1)')
    ],
}
