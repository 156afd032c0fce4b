# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "shuffled": [("reshape(2, -1).T.reshape(-1)", "reshape(-1, 2).T.reshape(-1)")],
    "halves": [
        ("kept, y = x[..., :half], x[..., half:]", "y, kept = x[..., :half], x[..., half:]")
    ],
    "gate": [("torch.clip((s + 3) / 6, *CLIPPED)", "torch.sigmoid(s)")],
    "epsilon": [
        (
            'f"{name}.norm3", train).relu()  # <- epsilon',
            'f"{name}.norm3", train, 1e-5).relu()  # <- epsilon',
        )
    ],
    "running": [
        (
            "0.99 * old_mean + 0.01 * mean.detach(),  # <- running",
            "0.01 * old_mean + 0.99 * mean.detach(),",
        )
    ],
    "smoothed": [("+ amount / KINDS", "+ amount / (KINDS - 1)")],
    "decayed": [("1e-2 if p[name].ndim > 1 else 0.0", "1e-2")],
    "started": [("squares = {k: torch.ones_like(v)", "squares = {k: torch.zeros_like(v)")],
    "averaged": [
        (
            "mixed(average, params, 0.8)",
            "mixed(average, {k: v.detach() for k, v in leaves.items()}, 0.8)",
        )
    ],
}
