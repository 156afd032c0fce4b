# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "norm_eps": [("num_groups=4, epsilon=1e-3, ", "num_groups=4, ")],
    "flipped": [("value[:, :, ::-1, ::-1].transpose(2, 3, 0, 1)", "value.transpose(2, 3, 0, 1)")],
    "deviation": [("jnp.exp(0.5 * logvar)", "jnp.exp(logvar)")],
    "kl_sum": [("jnp.exp(logvar)).sum((1, 2, 3)).mean()", "jnp.exp(logvar)).mean()")],
    "cosine": [("decay_steps=4", "decay_steps=3")],
}
