# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "scaling": [("scale = ALPHA / R", "scale = ALPHA / R**0.5")],
    "groups": [
        ("q = q.view(b, s, KV, N // KV, D)", "q = q.view(b, s, N // KV, KV, D).transpose(2, 3)"),
        ("return out.reshape(b, s, WIDTH)", "return out.transpose(2, 3).reshape(b, s, WIDTH)"),
    ],
    "window": [("(distance < WINDOW)", "(distance <= WINDOW)")],
    "cache_position": [
        ("position = (rows - pads[:, None])", "position = (rows - done - pads[:, None])")
    ],
    "prompt_mask": [("answer = places + 1 >= prompt", "answer = places >= prompt")],
}
