# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "eps": [("eps=1e-5", "eps=1e-3")],
    "momentum": [("decay=0.9", "decay=0.99")],
    "padding": [
        (
            "    y = F.conv2d(x,",
            "    x, pad = (F.pad(x, [0, 2, 0, 2]), 0) if stride > 1 and pad else (x, pad)\n    y = F.conv2d(x,",
        ),
    ],
    "order": [("torch.relu(x + short)", "torch.relu(x) + short")],
    "frozen": [("flat.var(0, unbiased=False)", "flat.var(0)")],
    "pool": [("x.mean(1).mean(1)", "x.amax(1).amax(1)")],
}
