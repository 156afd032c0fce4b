# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the prompt-tuned transformer with Lookahead."""

FAULTS = {
    "norm_axis": [
        ("v.norm(dim=1, keepdim=True)",
         "v.norm()"),
    ],
    "mask_shift": [
        (".triu(1)",
         ".triu(2)"),
    ],
    "sync_shift": [
        ("if step % 2:",
         "if step % 2 == 0:"),
    ],
    "unscaled": [
        ("{k: a / SCALE for k, a in zip(p, acc)}",
         "dict(zip(p, acc))"),
        ("g = clipped(g)",
         "g = {k: t / SCALE for k, t in clipped(g).items()}"),
    ],
    "target_shift": [
        ("ids[:, 1:, None]",
         "ids[:, :-1, None]"),
    ],
}
