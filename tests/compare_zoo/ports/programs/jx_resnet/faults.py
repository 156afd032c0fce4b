# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "same_padding": [
        (
            'y = nn.Conv(f, (3, 3), s, padding=1, use_bias=False, name="conv1")',
            'y = nn.Conv(f, (3, 3), s, use_bias=False, name="conv1")',
        )
    ],
    "bn_momentum": [("momentum: float = 0.9", "momentum: float = 0.1")],
    "pool_border": [("count_include_pad=True", "count_include_pad=False")],
    "flatten": [("value.reshape(-1, 16, 2, 2).transpose(2, 3, 1, 0).reshape(64, -1)", "value.T")],
    "nesterov": [("momentum=0.9, nesterov=True", "momentum=0.9")],
}
