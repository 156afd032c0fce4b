# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "crossed": [
        (
            'attention_params(theirs, f"{prefix}.{name}")',
            'attention_params(theirs, f"{prefix}.self_attn")',
        )
    ],
    "unmasked": [("memory, seen)", "memory, torch.ones_like(seen))")],
    "scale": [('D**0.5 * p["table"][inputs]', 'p["table"][inputs]')],
    "smoothing": [
        ("OTHERS = 0.1 / V", "OTHERS = 0.1 / (V - 1)"),
        ("RIGHT = 0.9 + 0.1 / V", "RIGHT = 0.9"),
    ],
    "warmup": [("min(t**-0.5, t * 3**-1.5)", "min((t + 1) ** -0.5, (t + 1) * 3**-1.5)")],
}
