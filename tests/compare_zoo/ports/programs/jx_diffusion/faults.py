# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "sin_cos": [("[jnp.sin(angles), jnp.cos(angles)]", "[jnp.cos(angles), jnp.sin(angles)]")],
    "pool_pads": [("padding=((1, 1), (1, 1))", 'padding="SAME"')],
    "skip_order": [("jnp.concatenate([x, skip], axis=-1)", "jnp.concatenate([skip, x], axis=-1)")],
    "noise_level": [("jnp.sqrt(1 - level) * noise", "(1 - level) * noise")],
    "average": [("step_size=0.2", "step_size=0.8")],
}
