# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "groups": [
        (
            "groups = x.reshape(x.shape[0], -1, NUM_GROUPS, x.shape[-1] // NUM_GROUPS)",
            "groups = x.reshape(x.shape[0], -1, x.shape[-1] // NUM_GROUPS, NUM_GROUPS)",
        )
    ],
    "epsilon": [("epsilon=1e-5", "epsilon=1e-3")],
    "pool": [(".amax(dim=(2, 4, 6))", ".mean(dim=(2, 4, 6))")],
    "axes": [(".permute(2, 3, 4, 0, 1)", ".permute(4, 3, 2, 0, 1)")],
    "skip": [("torch.cat([x, skip], dim=-1)", "torch.cat([skip, x], dim=-1)")],
    "background": [("log_p.exp()[..., 1:], y_true[..., 1:]", "log_p.exp(), y_true")],
    "samples": [("axes = (1, 2, 3)", "axes = (0, 1, 2, 3)")],
    "nesterov": [("rate * (slope + mu * v)", "rate * v")],
}
