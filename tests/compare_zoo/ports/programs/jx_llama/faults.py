# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FRAMEWORK = "jax"
FAULTS = {
    "rope_pairs": [
        ("a, b = jnp.split(x, 2, axis=-1)", "a, b = x[..., 0::2], x[..., 1::2]"),
        (
            "return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)",
            "return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)",
        ),
    ],
    "kv_groups": [
        (
            "q.reshape(batch, time, KV_HEADS, HEADS // KV_HEADS, HEAD)",
            "q.reshape(batch, time, HEADS // KV_HEADS, KV_HEADS, HEAD).swapaxes(2, 3)",
        ),
        (
            "y.reshape(batch, time, HEADS * HEAD)",
            "y.swapaxes(2, 3).reshape(batch, time, HEADS * HEAD)",
        ),
    ],
    "gate_up": [("np.concatenate([value, up]).T", "np.concatenate([up, value]).T")],
    "ignored": [
        ("jnp.where(valid, each, 0.0).sum() / valid.sum()", "jnp.where(valid, each, 0.0).mean()")
    ],
    "coupled_decay": [
        (
            "optax.chain(optax.add_decayed_weights(0.02), optax.adam(4e-3))",
            "optax.adamw(4e-3, weight_decay=0.02)",
        )
    ],
}
