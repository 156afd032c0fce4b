# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "norm_eps": [("EPS, MOMENTUM = 3, 1e-5, 0.1", "EPS, MOMENTUM = 3, 1e-3, 0.1")],
    "momentum": [("EPS, MOMENTUM = 3, 1e-5, 0.1", "EPS, MOMENTUM = 3, 1e-5, 0.9")],
    "slope": [
        (
            "padding=1)).clamp(min=0)  # <- slope\n        return",
            "padding=1)).clamp(min=-0.01)  # <- slope\n        return",
        ),
    ],
    "pool": [(".amax((3, 5))", ".mean((3, 5))")],
    "joined": [("torch.cat((middle, x), 1)", "torch.cat((x, middle), 1)")],
    "flipped": [("ioab->nohawb", "ioba->nohawb")],
    "dice": [("overlap = 2 * (p * right)", "overlap = (p * right)")],
}
