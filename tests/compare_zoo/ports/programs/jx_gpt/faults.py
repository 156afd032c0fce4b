# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "qkv_heads": [
        (
            "qkv.reshape(batch, size, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)",
            "jnp.split(qkv.reshape(batch, size, HEADS, -1).transpose(0, 2, 1, 3), 3, axis=-1)",
        )
    ],
    "scale": [("np.sqrt(q.shape[-1])", "np.sqrt(x.shape[-1])")],
    "tied": [
        (
            "    return tree",
            '    tree["lm_head"] = {"w": tree["wte"]["w"].T}  # <- tied\n    return tree',
        ),
        ('x @ params["wte"]["w"].T', 'x @ params["lm_head"]["w"]'),
    ],
    "warmup": [("optax.linear_schedule(0.25e-2, 1e-2, 3)", "optax.linear_schedule(0.0, 1e-2, 4)")],
    "causal": [("jnp.where(causal, scores, -jnp.inf)", "jnp.where(causal, scores, 0.0)")],
}
