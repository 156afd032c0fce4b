# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "axes": [
        ("mean = x.mean((0, 2, 3), keepdim=True)", "mean = x.mean((2, 3), keepdim=True)"),
        ("** 2).mean((0, 2, 3), keepdim=True)", "** 2).mean((2, 3), keepdim=True)"),
    ],
    "eps": [("variance + 1e-5", "variance + 1e-3")],
    "corner": [("F.one_hot(place, 4)", "F.one_hot(0 * place, 4)")],
    "flip": [(".transpose(0, 1).flip(2, 3)", ".transpose(0, 1)")],
    "scaled": [("pictures / 255 - 0.5", "pictures / 255")],
    "present": [("hit[having].mean()", "hit.mean()")],
    "weighted": [
        ("(importance * surprise).sum() / importance.sum()", "(importance * surprise).mean()")
    ],
    "momentum": [("add_(g + 5e-4 * p)", "add_(0.1 * (g + 5e-4 * p))")],
}
