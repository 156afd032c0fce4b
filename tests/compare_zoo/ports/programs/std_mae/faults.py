# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "heads": [
        (
            'state[at + "attn.qkv.weight"]',
            'state[at + "attn.qkv.weight"].unflatten(0, (-1, 3)).transpose(0, 1).flatten(0, 1)',
        )
    ],
    "decoupled": [("opt = torch.optim.AdamW(", "opt = torch.optim.Adam(")],
    "restore": [
        (
            "canvas.index_put((batch, seen), x[:, 1:])",
            "canvas.index_put((batch, seen.sort(1).values), x[:, 1:])",
        )
    ],
    "patchnorm": [("/ 47 + 1e-6)", "/ 48 + 1e-6)")],
    "pixels": [("windows.permute(0, 2, 3, 4, 5, 1)", "windows.permute(0, 2, 3, 5, 4, 1)")],
}
