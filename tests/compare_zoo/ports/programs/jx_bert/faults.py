# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "mask": [("x, x, mask=mask", "x, x")],
    "gelu": [("nn.gelu(y, approximate=False)", "nn.gelu(y)")],
    "norm_eps": [('nn.LayerNorm(name="norm", epsilon=1e-5)', 'nn.LayerNorm(name="norm")')],
    "out_kernel": [("value.T.reshape(HEADS, head, WIDTH)", "value.reshape(HEADS, head, WIDTH)")],
    "no_decay": [(", mask=decay_mask)", ")")],
}
